import numpy as np
import pandas as pd
import pytest
import torch
from blobs import blobs
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyshot.estimator import OneVsEachClassifier
from polyshot.gp import Cosine, OneVsEachGP, fit_propagation


def test_it_classifies_with_string_labels_and_probabilities_that_sum_to_one(fitted):
    _, _, queries, labels, _ = blobs()
    names = np.array(["ant", "bee", "cat", "dog"])[labels]
    assert fitted.score(queries, names) > 0.95
    p = fitted.predict_proba(queries)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_allclose(np.log(p), fitted.predict_log_proba(queries))
    np.testing.assert_array_equal(fitted.decision_function(queries).argmax(1), p.argmax(1))


def test_unseen_classes_have_higher_outlier_scores(fitted):
    _, _, queries, _, unseen = blobs()
    inside, outside = fitted.outlier_score(queries), fitted.outlier_score(unseen)
    assert (inside[:, None] < outside[None]).mean() > 0.9


@pytest.mark.parametrize("inference", ["propagation", "variational", "gibbs"])
def test_mean_logits_are_those_of_the_latent_posterior(inference):
    X, y, queries, _, _ = blobs(n_shot=2)
    model = OneVsEachClassifier(inference=inference, n_steps=1000, random_state=0).fit(X, y)
    mean, covariance = model.latent_mean_and_covariance(queries)
    np.testing.assert_allclose(mean, model.decision_function(queries), rtol=1e-8, atol=1e-8)
    assert covariance.shape == (len(queries), 4, 4)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert np.isfinite(model.log_marginal_likelihood_)
    assert (model.r_hat_ is not None) == (inference == "gibbs")


def test_propagation_agrees_with_the_general_algorithm_of_gp():
    X, y, queries, _, _ = blobs()
    kernel = Cosine(3.0).double()
    model = OneVsEachClassifier(kernel=Cosine(0.0).double(), log_scale=3.0).fit(X, y)
    x, q, labels = torch.from_numpy(X), torch.from_numpy(queries), torch.from_numpy(y)
    with torch.no_grad():
        K, K_star = kernel(x), kernel(q, x)
        sites = fit_propagation(OneVsEachGP(), K, labels, 4).sites
        expected = OneVsEachGP().condition(K, labels, sites).query_mean(K_star)[0].numpy()
    centred = expected - expected.mean(1, keepdims=True)
    ours = model.decision_function(queries)
    assert np.abs(ours - ours.mean(1, keepdims=True) - centred).max() < 0.05 * np.abs(centred).max()


def test_chains_agree_with_propagation():
    X, y, queries, _, _ = blobs(n_way=3, n_shot=3)
    exact = OneVsEachClassifier(inference="gibbs", random_state=0).fit(X, y)
    assert exact.r_hat_ < 1.05
    quick = OneVsEachClassifier().fit(X, y)
    assert exact.log_scale_ == quick.log_scale_
    assert np.abs(exact.predict_proba(queries) - quick.predict_proba(queries)).mean() < 0.02


def test_only_chains_draw_from_numpys_global_generator():
    X, y, *_ = blobs(n_way=2, n_shot=2)
    for inference, drawn in (("auto", False), ("variational", False), ("gibbs", True)):
        np.random.seed(0)  # noqa: NPY002
        before = str(np.random.get_state())  # noqa: NPY002
        OneVsEachClassifier(inference=inference, log_scale=1.0).fit(X, y)
        assert (str(np.random.get_state()) != before) == drawn  # noqa: NPY002


def test_chains_end_when_they_have_mixed_and_say_so_when_they_have_not():
    X, y, *_ = blobs(n_way=5, n_shot=5)
    short = OneVsEachClassifier(inference="gibbs", n_steps=40, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"R-hat is .* after 40 steps"):
        short.fit(X, y)
    assert short.r_hat_ > 1.1
    long = OneVsEachClassifier(inference="gibbs", random_state=0).fit(X, y)
    again = OneVsEachClassifier(inference="gibbs", random_state=0, n_steps=10**6).fit(X, y)
    assert long.r_hat_ < 1.05
    np.testing.assert_array_equal(again.fitted_.weights, long.fitted_.weights)
    with pytest.warns(ConvergenceWarning, match="R-hat is nan"):
        OneVsEachClassifier(inference="gibbs", n_steps=3, random_state=0).fit(X, y)


def test_the_order_of_the_examples_does_not_matter():
    X, y, queries, _, _ = blobs()
    order = np.random.default_rng(1).permutation(len(y))
    one, other = OneVsEachClassifier().fit(X, y), OneVsEachClassifier().fit(X[order], y[order])
    np.testing.assert_allclose(one.predict_proba(queries), other.predict_proba(queries), atol=1e-6)


@pytest.mark.parametrize("kernel", ["cosine", "linear", "rbf", "normalized-rbf", Cosine(1.0), lambda x, z: x @ z.T])
def test_every_kind_of_kernel_classifies(kernel):
    X, y, queries, labels, _ = blobs()
    assert OneVsEachClassifier(kernel=kernel).fit(X, y).score(queries, labels) > 0.9


def test_it_works_inside_scikit_learns_tools():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    pipeline = make_pipeline(StandardScaler(), OneVsEachClassifier(log_scale=3.0))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.85
    grid = GridSearchCV(OneVsEachClassifier(log_scale=3.0), {"kernel": ["cosine", "rbf"]}, cv=2).fit(X, y)
    assert grid.best_score_ > 0.85
    calibrated = CalibratedClassifierCV(OneVsEachClassifier(log_scale=3.0), cv=2).fit(X, y)
    assert calibrated.predict_proba(X).shape == (len(X), 3)
    copy = clone(pipeline[-1])
    assert copy.log_scale == 3.0
    assert not hasattr(copy, "classes_")


def test_feature_names_are_kept_and_other_names_refused(tmp_path):
    X, y, queries, _, _ = blobs(dim=4)
    frame, asked = (pd.DataFrame(x, columns=["a", "b", "c", "d"]) for x in (X, queries))
    model = OneVsEachClassifier().fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]
    np.testing.assert_allclose(model.predict_proba(asked), OneVsEachClassifier().fit(X, y).predict_proba(queries))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(asked.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature names"):
        model.add(asked[["d", "c", "b", "a"]], np.zeros(len(asked), int))
    model.save(tmp_path / "model")
    assert list(OneVsEachClassifier.load(tmp_path / "model").feature_names_in_) == ["a", "b", "c", "d"]


def test_it_ends_a_pipeline_whose_steps_give_data_frames():
    X, y, queries, labels, _ = blobs(dim=16)
    frame, asked = (pd.DataFrame(x).add_prefix("x") for x in (X, queries))
    pipeline = make_pipeline(StandardScaler(), OneVsEachClassifier()).set_output(transform="pandas").fit(frame, y)
    assert list(pipeline[-1].feature_names_in_) == list(frame.columns)
    assert isinstance(pipeline.predict_proba(asked), np.ndarray)
    assert pipeline.score(asked, labels) > 0.9


def test_two_hundred_classes_are_no_trouble():
    X, y, queries, labels, _ = blobs(n_way=200, n_shot=2, n_query=1, dim=64)
    model = OneVsEachClassifier().fit(X, y)
    assert model.score(queries, labels) > 0.8
    np.testing.assert_allclose(model.predict_proba(queries).sum(1), 1)
