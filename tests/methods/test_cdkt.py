"""CDKT's updates, bound and losses against dense formulas in f and quadrature."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import digamma, log_softmax
from torch.distributions import Gamma, MultivariateNormal, kl_divergence

from polyshot.errors import InputError
from polyshot.methods import build_method
from polyshot.methods.cdkt import CDKT, evidence_lower_bound, mean_field
from polyshot.task import Episode, LabelledSet, Space

N_WAY, SPACE = 3, Space((4,), 10)


def task(n_shot=2, n_query=2):
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(N_WAY, 4, generator=generator)

    def labelled(n):
        y = torch.arange(N_WAY).repeat_interleave(n)
        return LabelledSet(centres[y] + 0.5 * torch.randn(len(y), 4, generator=generator), y)

    return Episode(labelled(n_shot), labelled(n_query), N_WAY)


def covariance(n=5):
    x = np.random.default_rng(0).normal(size=(n, 3))
    return torch.from_numpy(2.0 * x @ x.T + 0.1 * np.eye(n)), torch.arange(n) % N_WAY


def dense_updates(K, y, n_steps, temperature, mean):
    """The paper's updates for f itself, with the temperature where the paper has it and explicit inverses."""
    Y, n = np.eye(N_WAY)[y], len(y)
    mu, sigma = np.full((n, N_WAY), mean), np.stack([K] * N_WAY)
    alpha = np.full(n, 1.5)
    for _ in range(n_steps):
        tilt = np.sqrt(mu**2 + np.stack([np.diag(s) for s in sigma], 1)) / temperature
        gamma = np.exp(digamma(alpha)[:, None] - 0.5 * mu / temperature) / (2 * N_WAY * np.cosh(0.5 * tilt))
        alpha = 1 + gamma.sum(1)
        omega = (gamma + Y) * np.tanh(0.5 * tilt) / (2 * tilt)
        inverse = np.linalg.inv(K)
        sigma = np.stack([np.linalg.inv(inverse + np.diag(w / temperature**2)) for w in omega.T])
        kappa = 0.5 / temperature * (Y - gamma)
        mu = np.stack([s @ (inverse @ np.full(n, mean) + k) for s, k in zip(sigma, kappa.T, strict=True)], 1)
    return mu, sigma, alpha, gamma, tilt, omega


@pytest.mark.parametrize(("temperature", "mean"), [(1.0, 0.0), (0.5, -0.7), (2.0, 0.3)])
def test_the_updates_are_the_papers(temperature, mean):
    K, y = covariance()
    q = mean_field(K / temperature**2, y, N_WAY, mean / temperature, 4)
    _, _, alpha, gamma, tilt, omega = dense_updates(K.numpy(), y.numpy(), 4, temperature, mean)
    np.testing.assert_allclose(q.alpha, alpha, rtol=1e-7)
    np.testing.assert_allclose(q.gamma, gamma, rtol=1e-7)
    np.testing.assert_allclose(q.tilt, tilt, rtol=1e-7)
    np.testing.assert_allclose(q.sites.omega[0], omega, rtol=1e-7)


@pytest.mark.parametrize(("temperature", "mean"), [(1.0, 0.0), (0.5, -0.7)])
def test_the_bound_is_the_sum_of_its_expectations_and_divergences(temperature, mean):
    K, y = covariance()
    q = mean_field(K / temperature**2, y, N_WAY, mean / temperature, 3)
    mu, sigma, alpha, gamma, tilt, omega = (
        torch.from_numpy(a) for a in dense_updates(K.numpy(), y.numpy(), 3, temperature, mean)
    )
    Y = torch.eye(N_WAY, dtype=torch.float64)[y]
    prior = MultivariateNormal(torch.full((len(y),), mean, dtype=torch.float64), K)
    divergence = sum(kl_divergence(MultivariateNormal(mu[:, c], sigma[c]), prior) for c in range(N_WAY))
    g, g2 = mu / temperature, (mu**2 + sigma.diagonal(dim1=1, dim2=2).T) / temperature**2
    site = ((Y - gamma) / 2 * g - omega / 2 * g2 - (Y + gamma) * math.log(2)).sum()
    polya_gamma = ((Y + gamma) * ((tilt / 2).cosh().log() - tilt / 4 * (tilt / 2).tanh())).sum()
    log_rate, rate = alpha.digamma() - math.log(N_WAY), alpha / N_WAY
    # E[log p(m | lambda)] - E[log q(m)], the factorials cancel; the prior of lambda is flat
    counts = (gamma * (log_rate[:, None] - gamma.log() + 1)).sum() - N_WAY * rate.sum()
    entropy = Gamma(alpha, torch.full_like(alpha, N_WAY)).entropy().sum()
    expected = site - divergence - polya_gamma + counts + entropy
    bound = evidence_lower_bound(K / temperature**2, y, q, mean / temperature)
    assert bound.item() == pytest.approx(expected.item(), rel=1e-8)


def test_the_bound_rises_and_stays_below_the_evidence():
    K, y = torch.tensor([[1.5]], dtype=torch.float64), torch.tensor([1])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f = nodes * math.sqrt(1.5)
    sigmoid = 1 / (1 + np.exp(-f))
    likelihood = sigmoid[None, :] / (sigmoid[None, :] + sigmoid[:, None])
    evidence = math.log((weights[:, None] * weights[None, :] * likelihood).sum() / (2 * math.pi))
    bounds = [evidence_lower_bound(K, y, mean_field(K, y, 2, 0.0, n), 0.0).item() for n in (1, 2, 5, 50, 200)]
    assert bounds == sorted(bounds)
    assert evidence - 0.5 < bounds[-1] < evidence


def test_the_bound_has_the_right_slope_in_the_kernel():
    K, y = covariance()
    q = mean_field(K, y, N_WAY, -0.2, 2)
    scale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(evidence_lower_bound(scale * K, y, q, -0.2), scale)
    low, high = (evidence_lower_bound(s * K, y, q, -0.2).item() for s in (1 - 1e-5, 1 + 1e-5))
    assert slope.item() == pytest.approx((high - low) / 2e-5, rel=1e-6)


def test_the_predictive_loss_is_that_of_the_dense_posterior():
    e, temperature, mean = task(), 0.5, -0.3
    options = {"objective": "pl", "temperature": temperature, "mean": mean, "n_steps": 3, "log_scale": 0.5}
    method = build_method("cdkt", SPACE, options=options)
    with torch.no_grad():
        x, z = e.support.x.double(), e.query.x.double()
        K, K_star, own = (k.numpy() for k in (method.kernel(x), method.kernel(z, x), method.kernel.diagonal(z)))
    jitter = 1e-9 * np.eye(len(K))  # of rank 4, and the formula has an inverse
    mu, sigma, *_ = dense_updates(K + jitter, e.support.y.numpy(), 3, temperature, mean)
    weights = K_star @ np.linalg.inv(K + jitter)
    logs = np.zeros((len(z), N_WAY))
    for c in range(N_WAY):
        f_mean = mean + weights @ (mu[:, c] - mean)
        f_variance = own - (weights * K_star).sum(1) + np.einsum("qn,nm,qm->q", weights, sigma[c], weights)
        for k, (m, v) in enumerate(zip(f_mean / temperature, f_variance / temperature**2, strict=True)):
            logs[k, c] = mean_log_sigmoid(m, v)
    expected = -log_softmax(logs, axis=1)[range(len(z)), e.query.y.numpy()].mean()
    assert method.loss(e, np.random.default_rng(0)).item() == pytest.approx(expected, rel=1e-4)


def mean_log_sigmoid(mean, variance):
    s = math.sqrt(variance)
    value, _ = quad(lambda t: -np.logaddexp(0, -(mean + s * t)) * math.exp(-t * t / 2), -12, 12)
    return value / math.sqrt(2 * math.pi)


def test_a_temperature_is_a_scale_of_the_kernel():
    e = task()
    warm, plain = (
        CDKT(SPACE, temperature=t, log_scale=s).adapt(e.support, N_WAY)(e.query.x).log_probs
        for t, s in ((0.5, 0.0), (1.0, 2 * math.log(2)))
    )
    torch.testing.assert_close(warm, plain, rtol=1e-5, atol=1e-6)


def test_the_mean_is_learned_if_asked_for():
    assert CDKT(SPACE, mean=-1.0).prior_mean() == -1.0
    method = CDKT(SPACE, mean=-1.0, temperature=0.5, learn_mean=True)
    assert method.prior_mean().item() == -2.0
    method.loss(task(), np.random.default_rng(0)).backward()
    assert method.mean.value.grad.item() != 0


def test_bad_options_are_refused():
    with pytest.raises(InputError, match=r"CDKT: temperature must be above 0, not 0\.0"):
        CDKT(SPACE, temperature=0.0)
