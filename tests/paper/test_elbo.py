import math

import numpy as np
import pytest
import torch
from quadrature import Exact
from torch.distributions import MultivariateNormal

from paper.studies.elbo import evidence_elbo, fitted_elbo, mixture_elbo
from paper.studies.iris import MODELS, Effort, make_split, make_task, model_posterior
from paper.studies.softmax_posterior import Estimate, fit_laplace, kernel_root, log_likelihood
from polyshot.errors import InputError
from polyshot.gp import LeastSquaresGP, Sites, Softmax, gibbs

Y = torch.tensor([0, 1])
K = torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
ROOT = kernel_root(K)
N_WAY = 3
CHAINED = ["logistic-softmax", "one-vs-each"]


@pytest.fixture(scope="module")
def truth():
    """ELBO and log evidence of each likelihood's posterior, and softmax's log evidence, by quadrature."""
    softmax = Exact(Softmax(), ROOT, Y, N_WAY, 8)
    result = {"softmax": softmax.log_evidence}
    for name in CHAINED:
        likelihood = MODELS[name]().likelihood
        q = Exact(likelihood, ROOT, Y, N_WAY, 8)
        gap = log_likelihood(Softmax(), q.f, Y) - log_likelihood(likelihood, q.f, Y)
        result[name] = (float(q.mean(gap)) + q.log_evidence, q.log_evidence)
    return result


@pytest.fixture(scope="module", params=CHAINED)
def chain(request):
    model = MODELS[request.param]()
    return request.param, model, gibbs(model, K, Y, N_WAY, n_chains=200, n_steps=70, burn_in=20, seed=0)


def test_the_elbo_of_gibbs_draws_is_that_of_quadrature(chain, truth) -> None:
    name, model, draws = chain
    exact, log_z = truth[name]
    estimate = evidence_elbo(model.likelihood, draws.f, Y, Estimate(log_z, 0.0))
    assert estimate.error < 0.02
    assert abs(estimate.value - exact) < 4 * estimate.error


def test_the_mixture_over_sites_comes_close(chain, truth) -> None:
    name, model, draws = chain
    sites = Sites(*(part[::10].flatten(0, 1) for part in draws.sites))
    estimate = mixture_elbo(model, ROOT, Y, sites, np.random.default_rng(0))
    assert abs(estimate.value - truth[name][0]) < 4 * estimate.error + 0.01
    assert estimate.value < truth["softmax"]


def test_the_mixture_of_one_gaussian_has_the_elbo_of_its_density() -> None:
    """One component, whose density torch can evaluate; the least-squares GP's is also its posterior."""
    model = LeastSquaresGP()
    sites = model.sites(Y, N_WAY)
    own = mixture_elbo(
        model, ROOT, Y, Sites(*(part.expand(50, -1, -1) for part in sites)), np.random.default_rng(0), 200
    )
    L = torch.linalg.inv(torch.linalg.inv(K) + torch.eye(2, dtype=torch.float64))
    mean = L @ sites.kappa[0]
    torch.manual_seed(0)
    q = [MultivariateNormal(mean[:, c], L) for c in range(N_WAY)]
    f = torch.stack([part.sample((10_000,)) for part in q], -1)
    prior = MultivariateNormal(torch.zeros(2, dtype=torch.float64), K)
    log_ratio = sum(prior.log_prob(f[..., c]) - q[c].log_prob(f[..., c]) for c in range(N_WAY))
    each = log_likelihood(Softmax(), f, Y) + log_ratio
    assert abs(own.value - float(each.mean())) < 4 * math.hypot(own.error, float(each.std()) / 100)
    gaussian = fit_laplace(model.likelihood, ROOT, Y, N_WAY)
    log_z = Estimate(float(model.log_marginal(K, Y, sites)), 0.0)
    draws = ROOT @ gaussian.draw(10_000, np.random.default_rng(1))
    third = evidence_elbo(model.likelihood, draws[None], Y, log_z)
    assert abs(own.value - third.value) < 4 * math.hypot(own.error, third.error)
    fitted = fitted_elbo(ROOT, Y, draws[None], np.random.default_rng(2), 10_000)
    assert abs(own.value - fitted.value) < 4 * math.hypot(own.error, fitted.error)


def test_softmax_as_its_own_approximation_loses_nothing(truth) -> None:
    f = torch.zeros(2, 3, 2, N_WAY, dtype=torch.float64)
    assert evidence_elbo(Softmax(), f, Y, Estimate(truth["softmax"], 0.0)) == Estimate(truth["softmax"], 0.0)


def test_one_vs_each_is_closest_to_softmax_and_all_bounds_hold(truth) -> None:
    assert truth["logistic-softmax"][0] < truth["one-vs-each"][0] < truth["softmax"]


def test_a_gaussian_is_not_fitted_to_too_few_draws() -> None:
    with pytest.raises(InputError, match="needs more than 12 draws, not 6"):
        fitted_elbo(ROOT, Y, torch.zeros(2, 3, 2, N_WAY, dtype=torch.float64), np.random.default_rng(0))


@pytest.mark.parametrize("name", CHAINED)
def test_chains_started_at_importance_draws_agree_with_long_ones_from_the_prior(name: str) -> None:
    split = make_split(5, 0, 0)
    task = make_task(split.x, split.y, split.x_test)
    effort = Effort(n_chains=64, n_weights=2000)
    posterior = model_posterior(name, task, effort, np.random.default_rng(0), ways=False)
    model = MODELS[name]()
    long = gibbs(model, task.K, split.y, N_WAY, n_chains=48, n_steps=300, burn_in=100, seed=1)
    # Both share the evidence, so only the expectation is compared.
    ours = posterior.bounds["evidence"]
    rest = evidence_elbo(model.likelihood, long.f, split.y, Estimate(0.0, 0.0))
    gaussian = fit_laplace(model.likelihood, task.root, split.y, N_WAY)
    log_weights = gaussian.log_weight(gaussian.draw(20_000, np.random.default_rng(2)))
    log_z = float(torch.logsumexp(log_weights, 0)) - math.log(20_000)
    assert abs(ours.value - rest.value - log_z) < 4 * math.hypot(ours.error, rest.error)
