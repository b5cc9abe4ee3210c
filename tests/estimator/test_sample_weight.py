"""A weight of two is the example twice, a weight of zero is no example: fits are compared with duplicated examples."""

import numpy as np
import pytest
import torch
from blobs import blobs
from scipy.special import expit
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier
from polyshot.gp import OneVsEachGP, elbo, fit_tied_propagation, fit_variational, polya_gamma_mean

WEIGHTS = np.array([2, 0, 1, 3, 1])


def weighted_task(n_way=3, **options):
    """Examples, labels, weights of 0 to 3, and queries."""
    X, y, queries, _, _ = blobs(n_way=n_way, **options)
    return X, y, np.resize(WEIGHTS, len(y)), queries


@pytest.mark.parametrize(
    ("kernel", "dim"), [("cosine", 128), ("rbf", 4), ("linear", 8), ("normalized-rbf", 8), ("dkt-cosine", 16)]
)
def test_weights_equal_duplication(kernel, dim):
    X, y, weights, queries = weighted_task(dim=dim)
    one = OneVsEachClassifier(kernel).fit(X, y, weights)
    other = OneVsEachClassifier(kernel).fit(X.repeat(weights, 0), y.repeat(weights))
    assert one.log_scale_ == pytest.approx(other.log_scale_, abs=1e-9)
    assert one.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=1e-6)
    np.testing.assert_allclose(one.decision_function(queries), other.decision_function(queries), atol=1e-6)
    np.testing.assert_allclose(one.outlier_score(queries), other.outlier_score(queries), atol=1e-6)
    moments = one.latent_mean_and_covariance(queries), other.latent_mean_and_covariance(queries)
    np.testing.assert_allclose(moments[0][1], moments[1][1], atol=1e-6)
    prior = [0.6, 0.3, 0.1]
    answers = [m.predict_proba(queries, class_prior=prior) for m in (one, other)]
    np.testing.assert_allclose(*answers, atol=1e-6)


def test_the_variational_bound_of_weights_is_that_of_duplicates():
    rng = np.random.default_rng(0)
    x, y, times = rng.standard_normal((6, 4)), torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([2, 1, 3, 1, 1, 2])
    K = torch.from_numpy(x @ x.T)
    twice = torch.arange(6).repeat_interleave(times)
    one, other = OneVsEachGP(example_weights=times.double()), OneVsEachGP()
    fits = [
        fit_variational(model, matrix, labels, 3, tolerance=1e-10)
        for model, matrix, labels in ((one, K, y), (other, K[twice][:, twice], y[twice]))
    ]
    torch.testing.assert_close(fits[0].tilt[twice], fits[1].tilt, rtol=1e-6, atol=1e-8)
    bounds = float(elbo(one, K, y, fits[0])), float(elbo(other, K[twice][:, twice], y[twice], fits[1]))
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-9)


def test_gibbs_draws_the_sites_of_whole_weights_and_refuses_others():
    y, weights = torch.tensor([0, 1]), torch.tensor([3.0, 1.0], dtype=torch.float64)
    psi = torch.tensor([[0.0, 1.5], [-0.5, 0.0]], dtype=torch.float64).expand(20_000, 2, 2)
    sites = OneVsEachGP(example_weights=weights).sites_at(psi, y, [np.random.default_rng(0)])
    expected = polya_gamma_mean(weights[:, None], psi[0]) * (psi[0] != 0)
    error = 5 * sites.omega.std(0) / 20_000**0.5  # five standard errors
    assert bool(((sites.omega.mean(0) - expected).abs() <= error).all())
    torch.testing.assert_close(sites.kappa[0], torch.tensor([[0, 1.5], [0.5, 0]], dtype=torch.float64))
    X, labels, times, queries = weighted_task(dim=8)
    model = OneVsEachClassifier(inference="gibbs", log_scale=2.0, n_steps=250, random_state=0).fit(X, labels, times)
    near = OneVsEachClassifier(log_scale=2.0).fit(X, labels, times)
    np.testing.assert_allclose(model.predict_proba(queries), near.predict_proba(queries), atol=0.1)
    with pytest.raises(InputError, match='inference="gibbs" needs whole numbers in sample_weight'):
        model.fit(X, labels, times + 0.5)


def test_added_examples_have_weights_too(tmp_path):
    X, y, weights, queries = weighted_task(dim=128)
    one = OneVsEachClassifier().fit(X[2:], y[2:]).add(X[:2], y[:2], sample_weight=[2, 0])
    rows = [*range(2, len(y)), 0, 0]
    other = OneVsEachClassifier().fit(X[2:], y[2:]).add(X[[0, 0]], y[[0, 0]])
    np.testing.assert_allclose(one.predict_proba(queries), other.predict_proba(queries), atol=2e-3)
    assert len(one.explain(queries)[0]) == len(rows) - 1  # an example of weight 0 has no number
    doubled = OneVsEachClassifier().fit(X[:6], y[:6], weights[:6]).add(X[6:], y[6:], weights[6:])  # all chosen again
    afresh = OneVsEachClassifier().fit(X, y, weights)
    np.testing.assert_array_equal(doubled.predict_proba(queries), afresh.predict_proba(queries))
    doubled.save(tmp_path / "model")
    again = OneVsEachClassifier.load(tmp_path / "model").remove(0)
    rest = OneVsEachClassifier().fit(X[1:], y[1:], weights[1:])
    np.testing.assert_allclose(again.predict_proba(queries), rest.predict_proba(queries), atol=1e-9)


@pytest.mark.parametrize(
    ("power", "error"), [(0.3, 0.06), (0.7, 0.06), (1.0, 0.02), (1.5, 0.02), (2.0, 0.02), (2.5, 0.02)]
)
def test_weights_are_powers_of_the_likelihood(power, error):
    """The error of powers above one is that of plain propagation, at power one; below one it is three times that."""
    # Two examples of two classes: only psi = f_1 - f_2 at each example matters, so a grid over two numbers is exact.
    K = torch.tensor([[4.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    y, weights = torch.tensor([0, 1]), torch.tensor([power, 1.0], dtype=torch.float64)
    fit, posterior = fit_tied_propagation(K, y, 2, example_weights=weights, tolerance=1e-8)
    grid = np.linspace(-20, 20, 401)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    prior = np.exp(-0.5 * (points @ np.linalg.inv(2 * K.numpy()) * points).sum(1))
    prior /= prior.sum()
    joint = prior * expit(points[:, 0]) ** power * expit(-points[:, 1])
    mean = joint @ points / joint.sum()
    np.testing.assert_allclose((posterior.f[:, 0] - posterior.f[:, 1]).numpy(), mean, atol=error)
    assert fit.log_evidence == pytest.approx(np.log(joint.sum()), abs=error)


def test_weights_pass_through_pipelines_and_searches():
    X, y, weights, queries = weighted_task(n_shot=10, dim=8)
    direct = OneVsEachClassifier().fit(StandardScaler().fit_transform(X), y, weights)
    piped = make_pipeline(StandardScaler(), OneVsEachClassifier()).fit(X, y, onevseachclassifier__sample_weight=weights)
    expected = direct.predict_proba(StandardScaler().fit(X).transform(queries))
    np.testing.assert_allclose(piped.predict_proba(queries), expected)
    with config_context(enable_metadata_routing=True):
        model = OneVsEachClassifier().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"log_scale": [1.0]}, cv=2).fit(X, y, sample_weight=weights)
    same = OneVsEachClassifier(log_scale=1.0).fit(X, y, weights)
    np.testing.assert_allclose(search.predict_proba(queries), same.predict_proba(queries))


def test_unlabelled_rows_may_have_any_weight():
    X, y, weights, queries = weighted_task(dim=128)
    unknown = np.r_[y, -np.ones(len(queries), int)]
    some, none = (np.r_[weights, np.full(len(queries), w)] for w in (1.0, 0.0))
    one, other = (OneVsEachClassifier(unlabeled=-1).fit(np.r_[X, queries], unknown, w) for w in (some, none))
    np.testing.assert_array_equal(one.predict_proba(queries), other.predict_proba(queries))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "one number per row of X, 15"),
        (np.full(15, -1.0), "finite and at least 0"),
        (np.full(15, np.nan), "finite and at least 0"),
        (["a"] * 15, "could not convert string to float"),
        (np.r_[np.ones(5), np.zeros(10)], "at least 2 classes"),
        (np.zeros(15), "every sample_weight is zero"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, message):
    X, y, *_ = blobs(n_way=3)
    with pytest.raises(InputError, match=message):
        OneVsEachClassifier().fit(X, y, weights)
