import numpy as np
import pytest
import torch
from checks import assert_close, central_difference
from hypothesis import given, settings
from integration import one_vs_each_posterior
from oracle import Dense, array, vec
from scipy.special import log_expit
from tasks import make_task, tasks, tensor

from polyshot.errors import InputError
from polyshot.gp import OneVsEachGP, fit_propagation, log_evidence

MODEL = OneVsEachGP()
SMALL = [(1, 2, 60), (3, 2, 40), (2, 3, 22), (1, 4, 40)]


def fit(task, **options):
    options = {"mean": tensor(task.mean), "tolerance": 1e-10} | options
    return fit_propagation(MODEL, tensor(task.K), task.labels, task.n_way, **options)


def tilted_moments(mean, variance):
    """Mean and variance of sigmoid(x) N(x | mean, variance), by the trapezoid rule to 12 digits."""
    deviation = np.sqrt(variance)
    x = np.arange(mean - 14 * deviation, mean + 14 * deviation + min(variance, 40.0), min(deviation, 1.0) / 10)
    weight = np.exp(log_expit(x) - (x - mean) ** 2 / (2 * variance) - log_expit(mean))
    first = (weight @ x) / weight.sum()
    return first, weight @ (x - first) ** 2 / weight.sum()


@settings(max_examples=30)
@given(task=tasks(log_scales=(-4.0, 4.0)))
def test_at_the_fixed_point_every_site_matches_the_moments_of_its_sigmoid(task):
    q = fit(task)
    assert q.converged
    dense = Dense(task.K, task.y, array(q.sites.omega)[0], array(q.sites.kappa)[0], mean=task.mean)
    psi, variance = dense.A @ vec(dense.mean), np.diag(dense.A @ dense.covariance @ dense.A.T)
    cavity_variance = 1 / (1 / variance - dense.omega)
    cavity_mean = cavity_variance * (psi / variance - dense.kappa)
    matched = np.array([tilted_moments(m, v) for m, v in zip(cavity_mean, cavity_variance, strict=True)])
    # The mixture of normals behind the sites is good to 2e-8 in the sigmoid, 1e-5 in these ratios of its slopes.
    assert_close(psi, matched[:, 0], 1e-5, floor=1.0)
    assert_close(variance, matched[:, 1], 1e-5, floor=1.0)


@pytest.mark.parametrize(("n", "n_way", "nodes"), SMALL)
def test_evidence_and_posterior_moments_are_nearly_exact(n, n_way, nodes):
    task = make_task(n, n_way, log_scale=1.0, y=np.arange(n) % n_way, seed=n)
    exact = one_vs_each_posterior(task.K, task.y, n_way, nodes, mean=task.mean)
    q = fit(task)
    dense = Dense(task.K, task.y, array(q.sites.omega)[0], array(q.sites.kappa)[0], mean=task.mean)
    # An approximation, and quadrature: measured at this scale are 1.4e-3, 8e-4 and 1.7e-3 of the largest entry.
    assert float(log_evidence(MODEL, tensor(task.K), task.labels, q, tensor(task.mean))) == pytest.approx(
        exact.log_evidence, abs=0.003
    )
    assert_close(vec(dense.mean), exact.mean, 0.002, floor=1.0)
    assert_close(dense.covariance + np.outer(vec(dense.mean), vec(dense.mean)), exact.second, 0.004, floor=1.0)


def test_one_comparison_is_exact():
    task = make_task(1, 2, log_scale=2.0)
    exact = one_vs_each_posterior(task.K, task.y, 2, 120, mean=task.mean)
    q = fit(task)
    value = log_evidence(MODEL, tensor(task.K), task.labels, q, tensor(task.mean))
    assert float(value) == pytest.approx(exact.log_evidence, abs=1e-6)


def test_the_gradient_of_the_evidence_is_that_of_the_converged_one():
    task = make_task(n=5, n_way=3, log_scale=1.0)
    direction = np.random.default_rng(1).standard_normal(task.root.shape)
    K = tensor(task.K).requires_grad_()
    log_evidence(MODEL, K, task.labels, fit(task), tensor(task.mean)).backward()

    def converged(t):
        moved = task._replace(root=task.root + t * direction)
        return float(log_evidence(MODEL, tensor(moved.K), task.labels, fit(moved), tensor(task.mean)))

    tangent = direction @ task.root.T + task.root @ direction.T
    # Stationary in the sites but for the mixture's error, which is 1e-6 of the slope.
    assert (array(K.grad) * tangent).sum() == pytest.approx(central_difference(converged, 1e-2), rel=1e-4)


@pytest.mark.parametrize("log_scale", [-20.0, 8.0, 12.0, 20.0])
@pytest.mark.parametrize("kind", ["full", "rank one", "duplicates"])
def test_sites_are_finite_at_every_scale(log_scale, kind):
    task = make_task(6, 3, log_scale=log_scale, kind=kind, y=[0, 1, 2, 0, 1, 2])
    q = fit_propagation(MODEL, tensor(task.K), task.labels, 3)
    assert torch.isfinite(q.sites.omega).all()
    assert torch.isfinite(q.sites.kappa).all()
    assert torch.isfinite(log_evidence(MODEL, tensor(task.K), task.labels, q)).all()


def test_weights_are_an_error():
    with pytest.raises(InputError, match="unit"):
        fit_propagation(OneVsEachGP(torch.ones(2, 2)), torch.eye(2).double(), torch.tensor([0, 1]), 2)


@pytest.mark.parametrize("noise", [1e-4, 1e-2])
def test_examples_that_repeat_each_other_are_not_called_converged_because_their_means_stand_still(noise):
    K, y = 19.3 + noise * torch.eye(6, dtype=torch.float64), torch.tensor([1, 1, 1, 0, 0, 0])
    found, exact = (fit_propagation(MODEL, K, y, 2, tolerance=t, max_sweeps=2000) for t in (1e-4, 1e-9))
    assert found.converged
    assert float(log_evidence(MODEL, K, y, found)) == pytest.approx(float(log_evidence(MODEL, K, y, exact)), abs=1e-4)
