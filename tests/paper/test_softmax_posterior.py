import numpy as np
import pytest
import torch
from quadrature import Exact

from paper.studies.compared import STUDIED
from paper.studies.softmax_posterior import (
    elliptical_slices,
    estimate_log_evidence,
    fit_laplace,
    kernel_root,
    log_likelihood,
    query_root,
)
from polyshot.gp import RBF, LeastSquaresGP, Softmax

Y = torch.tensor([0, 1])
# Scale 4: far enough from Gaussian for a mistake to show.
K = 4 * torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize("name", ["softmax", "logistic-softmax", "one-vs-each"])
def test_the_log_evidence_agrees_with_quadrature(name: str) -> None:
    root, likelihood = kernel_root(K), STUDIED[name]()
    gaussian = fit_laplace(likelihood, root, Y, 2)
    estimate = estimate_log_evidence(gaussian.log_weight(gaussian.draw(20_000, np.random.default_rng(0))))
    exact = Exact(likelihood, root, Y, 2, 24).log_evidence
    assert estimate.error < 0.01
    assert abs(estimate.value - exact) < 4 * estimate.error


def test_the_log_evidence_is_unbiased_and_its_stated_error_is_the_error() -> None:
    root = kernel_root(K / 4)
    gaussian = fit_laplace(Softmax(), root, Y, 2)
    exact = Exact(Softmax(), root, Y, 2, 24).log_evidence
    draws = gaussian.draw(300 * 200, np.random.default_rng(0)).reshape(300, 200, *gaussian.mode.shape)
    value, stated = np.array([estimate_log_evidence(gaussian.log_weight(u)) for u in draws]).T
    assert abs(value.mean() - exact) < 4 * value.std() / 300**0.5
    assert np.sqrt(((value - exact) ** 2).mean()) == pytest.approx(np.sqrt((stated**2).mean()), rel=0.15)


def test_laplace_is_exact_for_the_gaussian_likelihood() -> None:
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((9, 2)))
    y, model = torch.arange(3).repeat(3), LeastSquaresGP()
    with torch.no_grad():
        K = RBF().double()(x)
    gaussian = fit_laplace(model.likelihood, kernel_root(K), y, 3)
    log_weights = gaussian.log_weight(gaussian.draw(50, np.random.default_rng(0)))
    exact = model.log_marginal(K, y, model.sites(y, 3)).expand(50)
    torch.testing.assert_close(log_weights, exact, rtol=0, atol=1e-7)


def test_the_mode_is_where_the_slope_is_zero() -> None:
    root = kernel_root(K)
    for make in STUDIED.values():
        gaussian = fit_laplace(make(), root, Y, 3)
        u = gaussian.mode.clone().requires_grad_()
        (log_likelihood(gaussian.likelihood, root @ u, Y) - u.square().sum() / 2).backward()
        assert u.grad is not None
        assert float(u.grad.abs().max()) < 1e-3


def test_elliptical_slices_have_the_moments_of_the_posterior() -> None:
    root = kernel_root(K)
    gaussian = fit_laplace(Softmax(), root, Y, 2)
    u = elliptical_slices(gaussian, 200, 80, np.random.default_rng(0))[20:]
    exact = Exact(Softmax(), root, Y, 2, 24)
    for moment in (lambda u: u, lambda u: u**2, lambda u: (root @ u).softmax(-1)):
        chains = moment(u).mean(0)
        error = chains.std(0) / len(chains) ** 0.5
        assert bool(((chains.mean(0) - exact.mean(moment(exact.u))).abs() < 4 * error + 1e-4).all())


def test_identical_points_of_different_classes_are_no_special_case() -> None:
    ones = torch.ones(2, 2, dtype=torch.float64)
    root = kernel_root(ones)
    assert root.shape == (2, 1)
    gaussian = fit_laplace(Softmax(), root, Y, 2)
    estimate = estimate_log_evidence(gaussian.log_weight(gaussian.draw(5_000, np.random.default_rng(0))))
    assert abs(estimate.value - Exact(Softmax(), root, Y, 2, 40).log_evidence) < 4 * estimate.error


def test_queries_given_u_have_the_prior_back() -> None:
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((8, 2)))
    with torch.no_grad():
        K = RBF().double()(x)
    root = kernel_root(K[:5, :5])
    root_star, variance = query_root(root, K[5:, :5], K.diagonal()[5:])
    torch.testing.assert_close(root_star @ root.mT, K[5:, :5])
    schur = K[5:, 5:] - K[5:, :5] @ torch.linalg.solve(K[:5, :5], K[:5, 5:])
    torch.testing.assert_close(variance, schur.diagonal())
