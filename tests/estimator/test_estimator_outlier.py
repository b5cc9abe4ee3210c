import numpy as np
import pytest
from blobs import blobs
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from polyshot.estimator import OneVsEachClassifier, inference
from polyshot.gp import none_class


@pytest.mark.parametrize(
    ("way", "what", "function", "method"),
    [
        ("propagation", "expectation propagation has not converged", "fit_tied_propagation", "predict"),
        ("propagation", "outlier_score has not converged", "fit_with_none", "outlier_score"),
        ("variational", "outlier_score has not converged", "fit_with_none", "outlier_score"),
        ("variational", "the variational posterior has not converged", "fit_variational", "predict"),
    ],
)
def test_what_has_not_converged_is_told(monkeypatch, way, what, function, method):
    fit = getattr(inference, function)

    def short(*arguments, **options):
        result = fit(*arguments, **options)
        if function == "fit_variational":
            return result._replace(converged=False)
        return result[0]._replace(converged=False), result[1]

    monkeypatch.setattr(inference, function, short)
    X, y, *_ = blobs()
    with pytest.warns(ConvergenceWarning, match=what):
        getattr(OneVsEachClassifier(log_scale=3.0, inference=way).fit(X, y), method)(X)


@pytest.mark.parametrize("way", ["variational", "gibbs"])
def test_the_outlier_score_does_not_depend_on_the_inference(way):
    X, y, queries, _, unseen = blobs(n_way=3, n_shot=3)
    both = np.concatenate([queries, unseen])
    one = OneVsEachClassifier(log_scale=3.0).fit(X, y).outlier_score(both)
    other = OneVsEachClassifier(log_scale=3.0, inference=way, random_state=0).fit(X, y).outlier_score(both)
    np.testing.assert_allclose(other, one, atol=0.02)


def test_the_outlier_score_is_swept_until_it_has_converged(monkeypatch):
    fit, fits = none_class.fit_tied_propagation, []
    monkeypatch.setattr(none_class, "fit_tied_propagation", lambda *x, **o: fits.append(fit(*x, **o)) or fits[-1])
    X, y = np.random.default_rng(1).standard_normal((90, 8)), np.arange(90) % 3
    model = OneVsEachClassifier("rbf", log_scale=8.0).fit(X, y)
    assert not fits  # not before it is asked for
    model.outlier_score(X)
    assert len(fits) == 1
    model.outlier_score(X)
    assert len(fits) == 1
    assert fits[-1][0].kappa.shape[1] == 4
    assert fits[-1][0].n_sweeps > 30
    assert fits[-1][0].converged


def test_the_rbf_finds_a_flower_of_a_third_kind():
    """Logits fade far from the examples, so that their contrast alone has an AUROC of 0.87 here."""
    X, y = load_iris(return_X_y=True)
    areas = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        first, second, unseen = (rng.permutation(np.flatnonzero(y == c)) for c in rng.permutation(3))
        support, queries = np.r_[first[:5], second[:5]], np.r_[first[5:], second[5:]]
        model = OneVsEachClassifier(kernel="rbf").fit(X[support], y[support])
        truth = np.repeat([0, 1], [len(queries), len(unseen)])
        areas.append(roc_auc_score(truth, model.outlier_score(X[np.r_[queries, unseen]])))
    assert np.mean(areas) > 0.93
