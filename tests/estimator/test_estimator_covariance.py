import numpy as np
import pytest
import torch
from blobs import blobs

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier
from polyshot.estimator.covariance import Covariance
from polyshot.gp import KERNELS, RBF, Cosine

NAMES = ["cosine", "dkt-cosine", "linear", "rbf", "normalized-rbf", "cosine-rbf"]


def test_a_prediction_calls_your_kernel_once():
    X, y, queries, _, _ = blobs()
    calls = []
    model = OneVsEachClassifier(lambda x, z: calls.append(1) or x @ z.T, log_scale=3.0).fit(X, y)
    for method in ("predict", "predict_proba", "decision_function", "outlier_score"):
        calls.clear()
        getattr(model, method)(queries)
        assert len(calls) == 1


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("factor", [1e160, 1e-200])
def test_the_unit_of_the_features_does_not_matter_however_large_or_small(kernel, positive, factor):
    X, y, queries, _, _ = blobs()
    if positive:
        X, queries = abs(X), abs(queries)
    one, other = (OneVsEachClassifier(kernel).fit(f * X, y).predict_proba(f * queries) for f in (1, factor))
    np.testing.assert_allclose(other, one, atol=1e-6)


@pytest.mark.parametrize("kernel", NAMES)
def test_the_largest_queries_are_answered_or_refused(kernel):
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier(kernel, log_scale=3.0).fit(X, y)
    queries[0] = 1e308
    if kernel == "linear":
        with pytest.raises(InputError, match="rows too large for the kernel"):
            model.predict_proba(queries)
    else:
        assert np.isfinite(model.predict_proba(queries)).all()


def test_zero_rows_do_not_change_the_scale_of_the_others():
    X = torch.from_numpy(blobs()[0])
    with_zeros = torch.cat([X, torch.zeros(20, 32, dtype=X.dtype)])
    for kernel in ("cosine", Cosine(1.0).double()):
        one, other = Covariance.of(kernel, X), Covariance.of(kernel, with_zeros)
        torch.testing.assert_close(other(X, X), one(X, X))


def test_your_kernel_may_change_after_the_fit():
    X, y, queries, _, _ = blobs()
    kernel = Cosine(1.0)
    model = OneVsEachClassifier(kernel).fit(X, y)
    before = model.predict_proba(queries)
    with torch.no_grad():
        kernel.log_scale += 3
    np.testing.assert_array_equal(model.predict_proba(queries), before)


def test_what_was_fitted_is_saved_though_your_kernel_has_changed(tmp_path):
    X, y, queries, _, _ = blobs()
    kernel = Cosine(1.0)
    model = OneVsEachClassifier(kernel).fit(X, y)
    with torch.no_grad():
        kernel.log_scale += 3
    model.save(tmp_path / "model")
    again = OneVsEachClassifier.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(queries), model.predict_proba(queries), rtol=1e-12)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_features_on_scales_of_their_own_count_alike(kernel, tmp_path):
    X, y, queries, labels, _ = blobs(n_shot=8, dim=6)
    noise = np.random.default_rng(1).standard_normal((len(X) + len(queries), 1))
    one, other = (np.c_[x, z] for x, z in zip((X, queries), np.split(noise, [len(X)]), strict=True))
    units = np.array([1, 2, 0.5, 1, 1, 2, 1e4])  # in metres, but the noise in millimetres
    model = OneVsEachClassifier(kernel).fit(one * units, y)
    assert model.score(other * units, labels) >= OneVsEachClassifier(kernel).fit(one, y).score(other, labels) - 0.05
    expected = OneVsEachClassifier(kernel).fit((one - one.mean(0)) / one.std(0), y)
    queries = (other - one.mean(0)) / one.std(0)
    np.testing.assert_allclose(model.predict_proba(other * units), expected.predict_proba(queries), atol=1e-9)
    model.save(tmp_path / "model")
    again = OneVsEachClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(other * units), model.predict_proba(other * units))


def test_features_of_one_kind_keep_one_unit():
    X, y, *_ = blobs(dim=48)
    decaying = X * np.linspace(3, 0.5, 48)  # as principal components of embeddings
    unit = OneVsEachClassifier().fit(decaying, y).fitted_.covariance.unit
    assert (unit == unit[0]).all()


def test_a_stationary_kernel_from_outside_is_treated_as_the_rbf():
    X, y, queries, _, _ = blobs(dim=6)
    KERNELS.register("another-rbf", type("AnotherRBF", (RBF,), {}))
    try:
        one, other = (OneVsEachClassifier(kernel).fit(X, y) for kernel in ("rbf", "another-rbf"))
        np.testing.assert_array_equal(other.predict_proba(queries), one.predict_proba(queries))
    finally:
        KERNELS.unregister("another-rbf")
