"""Examples removed, other class frequencies, and what is stored about the features."""

import numpy as np
import pytest
from blobs import blobs

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier, projection
from polyshot.estimator.covariance import Covariance
from polyshot.estimator.fitted import kernel_matrix
from polyshot.estimator.projection import scaled

NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.mark.parametrize("rows", [3, [0, -1], np.arange(5), []])
def test_removing_examples_is_fitting_the_others(rows):
    X, y, queries, _, unseen = blobs()
    X, y = np.r_[X, unseen[:2]], np.r_[NAMES[y], ["elk", "elk"]]
    model = OneVsEachClassifier().fit(X[:-3], y[:-3]).add(X[-3:], y[-3:]).remove(rows)
    afresh = OneVsEachClassifier().fit(np.delete(X, rows, 0), np.delete(y, rows))
    assert model.classes_.tolist() == afresh.classes_.tolist()
    np.testing.assert_array_equal(model.predict_proba(queries), afresh.predict_proba(queries))
    np.testing.assert_array_equal(model.explain(queries), afresh.explain(queries))


def test_a_wrong_label_is_corrected_by_remove_and_add():
    X, y, queries, _, _ = blobs()
    wrong = np.where(np.arange(len(y)) == 7, 3, y)
    model = OneVsEachClassifier().fit(X, wrong).remove(7).add(X[7:8], y[7:8])
    right = OneVsEachClassifier(log_scale=model.log_scale_).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(queries), right.predict_proba(queries), atol=0.02)


def test_a_removal_that_fails_changes_nothing():
    X, y, queries, _, _ = blobs(n_way=2)
    model = OneVsEachClassifier().fit(X, y)
    before = model.predict_proba(queries)
    for rows, message in (
        (10, "rows must be from -10 to 9"),
        (-11, "rows must be from -10 to 9"),
        ([0.5], "rows must be whole numbers"),
        (np.ones(10, dtype=bool), "from a mask, use numpy.flatnonzero"),
        (np.arange(5), "leaves fewer than 2 classes"),
    ):
        with pytest.raises(InputError, match=message):
            model.remove(rows)
    np.testing.assert_array_equal(model.predict_proba(queries), before)


def test_another_class_frequency_reweights_the_probabilities():
    X, y, queries, _, _ = blobs()
    X, y = X[2:], NAMES[y[2:]]  # 3, 5, 5, 5 examples
    model = OneVsEachClassifier(log_scale=1.0).fit(X, y)
    prior, frequency = np.array([0.7, 0.2, 0.1, 0.0]), np.array([3, 5, 5, 5]) / 18
    expected = model.predict_proba(queries) * prior / frequency
    expected /= expected.sum(1, keepdims=True)
    for given in (prior, 10 * prior, dict(zip(NAMES.tolist(), prior, strict=True))):
        np.testing.assert_allclose(model.predict_proba(queries, class_prior=given), expected, rtol=1e-12, atol=1e-15)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(model.predict_log_proba(queries, class_prior=prior), np.log(expected), rtol=1e-9)
    same = model.predict_proba(queries, class_prior=frequency)
    np.testing.assert_allclose(same, model.predict_proba(queries), rtol=1e-12)


def test_another_class_frequency_helps_where_queries_have_it():
    X, y, queries, labels, _ = blobs(n_way=2, n_shot=10, n_query=500, dim=4)
    rare = np.r_[np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)[:25]]  # 20 : 1, from balanced examples
    model = OneVsEachClassifier().fit(X, y)

    def log_loss(**options):
        return -model.predict_log_proba(queries[rare], **options)[np.arange(len(rare)), labels[rare]].mean()

    assert log_loss(class_prior=[20, 1]) < 0.9 * log_loss()


@pytest.mark.parametrize("prior", [[0.5, 0.5], [-1, 1, 1, 1], [0, 0, 0, 0], [np.nan, 1, 1, 1], "abcd", {"ant": 1.0}])
def test_class_frequencies_that_make_no_sense_are_refused(fitted, prior):
    with pytest.raises(InputError, match="class_prior must"):
        fitted.predict_proba(blobs()[2], class_prior=prior)


def test_metadata_is_stored_and_kept(tmp_path, fitted):
    about = {"encoder": "minilm", "version": 2, "crop": [224, 224], "normalised": True, "note": None}
    fitted.save(tmp_path / "model", metadata=about)
    again = OneVsEachClassifier.load(tmp_path / "model")
    assert again.metadata_ == about
    again.save(tmp_path / "copy")
    assert OneVsEachClassifier.load(tmp_path / "copy").metadata_ == about
    fitted.save(tmp_path / "model")
    assert OneVsEachClassifier.load(tmp_path / "model").metadata_ == {}
    for wrong in ("minilm", {"encoder": object()}, {1: "a"}, {"size": (1, 2)}, {"x": float("nan")}):
        with pytest.raises(InputError, match="metadata must be a dict"):
            fitted.save(tmp_path / "model", metadata=wrong)


def test_numbers_of_the_examples_survive_storage(tmp_path):
    X, y = np.eye(12), np.arange(12) % 3
    OneVsEachClassifier("cosine", log_scale=3.0).fit(X, y).save(tmp_path / "model")
    again = OneVsEachClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.explain(X, y).argmax(1), np.arange(12))


@pytest.mark.parametrize("kernel", ["cosine", "rbf", lambda a, b: 1 + a @ b.T])
def test_an_addition_computes_the_new_covariances_only(kernel, monkeypatch):
    X, y, *_ = blobs()
    model = OneVsEachClassifier(kernel).fit(X[:-2], y[:-2])
    sizes, evaluate = [], Covariance.__call__
    monkeypatch.setattr(Covariance, "__call__", lambda self, x, z: sizes.append(len(x)) or evaluate(self, x, z))
    model.add(X[-2:], y[-2:])
    assert set(sizes) == {2}
    fitted = model.fitted_
    K = scaled(kernel_matrix(fitted.covariance, None, fitted.examples.X), fitted.log_scale, fitted.covariance.intercept)
    np.testing.assert_allclose(fitted.posterior.K, K, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(fitted.posterior.K, fitted.posterior.K.T)


def test_an_addition_by_features_computes_the_new_features_only(monkeypatch):
    monkeypatch.setattr(projection, "feature_space_is_cheaper", lambda *_: True)
    X, y, *_ = blobs(dim=6)
    model = OneVsEachClassifier("linear").fit(X[:-2], y[:-2])
    sizes, evaluate = [], projection.Projection.__call__
    monkeypatch.setattr(projection.Projection, "__call__", lambda self, x: sizes.append(len(x)) or evaluate(self, x))
    model.add(X[-2:], y[-2:])
    assert sizes == [2]
    fitted = model.fitted_
    whole = kernel_matrix(fitted.covariance, fitted.projection, fitted.examples.X)
    phi = scaled(whole, fitted.log_scale, fitted.covariance.intercept).phi
    np.testing.assert_allclose(fitted.posterior.K.phi, phi, rtol=1e-12, atol=1e-12)
