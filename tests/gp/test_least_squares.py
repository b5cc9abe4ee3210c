import numpy as np
import pytest
import torch
from checks import assert_close, assert_mean, central_difference
from hypothesis import given
from oracle import Dense, array, unvec
from peers import gpytorch
from scipy import stats
from tasks import make_task, tasks, tensor

from polyshot.gp import RBF, LeastSquaresGP, gibbs, marginal_likelihood, predict, predictive_likelihood

NOISE = 0.3


def targets(y, n_way):
    return 2.0 * (y[:, None] == np.arange(n_way)) - 1


@given(task=tasks())
def test_the_posterior_is_ridge_regression_on_plus_and_minus_one(task):
    model = LeastSquaresGP(NOISE)
    noisy = task.K + NOISE * np.eye(len(task.y))
    residual = targets(task.y, task.n_way) - task.mean
    conditional = model.condition(tensor(task.K), task.labels, model.sites(task.labels, task.n_way), tensor(task.mean))
    logits = conditional.query(tensor(task.K_star), tensor(task.k_star_star), 0.4)
    assert_close(array(logits.mean)[0], 0.4 + task.K_star @ np.linalg.solve(noisy, residual), 1e-8)
    explained = np.einsum("qn,nq->q", task.K_star, np.linalg.solve(noisy, task.K_star.T))
    expected = (task.k_star_star - explained)[:, None, None] * np.eye(task.n_way)
    assert_close(array(logits.covariance)[0], expected, 1e-8, floor=task.k_star_star.max())


@given(task=tasks())
def test_the_marginal_likelihood_is_that_of_the_targets_with_gradients(task):
    model = LeastSquaresGP(NOISE)
    noisy = task.K + NOISE * np.eye(len(task.y))
    columns = zip(targets(task.y, task.n_way).T, task.mean.T, strict=True)
    expected = sum(stats.multivariate_normal(m, noisy, allow_singular=True).logpdf(t) for t, m in columns)
    sites = model.sites(task.labels, task.n_way)
    K, mean = tensor(task.K).requires_grad_(), tensor(task.mean).requires_grad_()
    value = model.log_marginal(K, task.labels, sites, mean)
    value.sum().backward()
    assert_close(array(value), [expected], 1e-8)
    dense = Dense(task.K, task.y, array(sites.omega)[0], array(sites.kappa)[0], mean=task.mean, coupled=False)
    # An autograd gradient of a symmetric K may be split unevenly over the two halves: compare their mean.
    gradient = array(K.grad + K.grad.mT) / 2
    assert_close(gradient, dense.gradient_in_K, 1e-8)
    assert_close(array(mean.grad), unvec(dense.a, task.n_way), 1e-8)


def peer_of(kernel, x, y, n_way):
    """GPyTorch's exact GP, one batch entry a class."""

    class Regression(gpytorch.models.ExactGP):
        def __init__(self, x, t, likelihood):
            super().__init__(x, t, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
            self.covar_module.outputscale = kernel.log_scale.exp().item()
            self.covar_module.base_kernel.lengthscale = np.sqrt(x.shape[-1]) * kernel.log_lengthscale.exp().item()

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    peers = []
    for t in tensor(targets(array(y).astype(int), n_way).T):
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = NOISE
        peers.append((Regression(x, t, likelihood).double(), likelihood, t))
    return peers


@pytest.fixture
def regression():
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(n, 3, generator=generator).double() for n in (8, 4))
    return RBF(0.5, -0.2).double(), x, torch.arange(8) % 3, z


@pytest.mark.filterwarnings("ignore:The input matches the stored training data")
def test_gpytorch_has_the_same_posterior_and_marginal_likelihood(regression):
    kernel, x, y, z = regression
    model = LeastSquaresGP(NOISE)
    K, K_star = kernel(x).detach(), kernel(z, x).detach()
    logits = model.condition(K, y, model.sites(y, 3)).query(K_star, kernel.diagonal(z).detach())
    total = 0.0
    for c, (peer, likelihood, t) in enumerate(peer_of(kernel, x, y, 3)):
        total += 8 * float(gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, peer)(peer(x), t).detach())
        posterior = peer.eval()(z)
        assert_close(array(logits.mean)[0, :, c], array(posterior.mean), 1e-6)
        assert_close(array(logits.covariance)[0, :, c, c], array(posterior.variance), 1e-6)
    ours = marginal_likelihood(model, kernel, x, y, 3, n_chains=1)
    # GPyTorch keeps its noise behind a softplus and adds jitter where it must: six digits are what it has.
    assert float(ours.detach()) == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("objective", ["log_marginal", "marginal_likelihood", "predictive_likelihood"])
def test_a_learned_noise_has_the_gradient_of_finite_differences(regression, objective):
    kernel, x, y, z = regression

    def value(log_noise):
        model = LeastSquaresGP(log_noise.exp())
        if objective == "log_marginal":
            return model.log_marginal(kernel(x).detach(), y, model.sites(y, 3)).sum()
        if objective == "marginal_likelihood":
            return marginal_likelihood(model, kernel, x, y, 3, n_chains=2, seed=0)
        labels = torch.tensor([0, 1, 2, 0])
        return predictive_likelihood(model, kernel, x, y, z, labels, 3, n_chains=1, rule="monte-carlo", seed=0)

    log_noise = torch.tensor(-0.7, dtype=torch.float64, requires_grad=True)
    value(log_noise).backward()
    slope = central_difference(lambda t: float(value(log_noise.detach() + t).detach()), 1e-3)
    assert float(log_noise.grad) == pytest.approx(slope, rel=1e-8)


def test_one_gibbs_step_is_an_exact_posterior_draw():
    task = make_task(n=3, n_way=2, log_scale=1.0)
    model = LeastSquaresGP(NOISE)
    f = array(gibbs(model, tensor(task.K), task.labels, 2, n_chains=20_000, n_steps=1, seed=0).f[0])
    gain = np.linalg.solve(task.K + NOISE * np.eye(3), task.K).T
    mean = gain @ targets(task.y, 2)
    assert_mean(f, mean)
    centred = f - mean
    covariance = task.K - gain @ task.K
    assert_mean(centred[:, :, None, 0] * centred[:, None, :, 0], covariance)
    assert_mean(centred[:, :, None, 0] * centred[:, None, :, 1], np.zeros((3, 3)))


def test_one_chain_is_enough_for_prediction():
    task = make_task(n=4, n_way=3)
    model = LeastSquaresGP(NOISE)
    args = (tensor(task.K_star), tensor(task.k_star_star))
    one, many = (
        predict(model, tensor(task.K), task.labels, model.sites(task.labels, 3, m), *args, rule="monte-carlo", seed=0)
        for m in (1, 3)
    )
    assert_close(array(one.scores), array(many.scores), 1e-13)
    assert_close(array(one.log_probs.exp().sum(-1)), np.ones(3), 1e-12)
