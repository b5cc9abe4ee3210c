import numpy as np
import pytest
import torch
from checks import assert_close, assert_mean
from hypothesis import given
from integration import logistic_softmax_posterior
from oracle import Dense, array, unvec
from sampling import assert_calibrated, assert_posterior_moments, calibration_ranks
from scipy.special import expit
from tasks import make_task, tasks, tensor

from polyshot.gp import LogisticSoftmaxGP, Sites, gibbs, polya_gamma_mean

MODEL = LogisticSoftmaxGP()


def counted_sites(task, seed=0):
    """Poisson counts and the sites that they give: omega > 0 where b = [y = c] + n is, kappa = ([y = c] - n) / 2."""
    own = task.y[:, None] == np.arange(task.n_way)
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.7, own.shape)
    b = own + counts
    omega = np.where(b > 0, b * np.exp(rng.uniform(np.log(1e-3), 0, own.shape)), 0.0)
    return Sites(tensor(omega)[None], tensor((own - counts) / 2)[None]), b


@given(task=tasks())
def test_the_conditional_is_the_dense_one(task):
    sites, b = counted_sites(task)
    dense = Dense(task.K, task.y, array(sites.omega)[0], array(sites.kappa)[0], mean=task.mean, b=b, coupled=False)
    K, mean = tensor(task.K).requires_grad_(), tensor(task.mean).requires_grad_()
    value = MODEL.log_marginal(K, task.labels, sites, mean)
    value.sum().backward()
    assert_close(array(value), [dense.log_marginal], 1e-8, floor=1.0)
    assert_close(array(K.grad), dense.gradient_in_K, 1e-8)
    assert_close(array(mean.grad), unvec(dense.a, task.n_way), 1e-8)
    means, covariances = dense.query(task.K_star, task.k_star_star, mean=-0.4)
    for K_route in (K, K.detach()):
        conditional = MODEL.condition(K_route, task.labels, sites, mean)
        logits = conditional.query(tensor(task.K_star), tensor(task.k_star_star), -0.4)
        assert_close(array(logits.mean)[0], means, 1e-8)
        assert_close(array(logits.covariance)[0], covariances, 1e-8)


@given(task=tasks())
def test_solve_is_the_dense_one(task):
    sites, b = counted_sites(task)
    dense = Dense(task.K, task.y, array(sites.omega)[0], array(sites.kappa)[0], b=b, coupled=False)
    r = array(sites.kappa)[0] / np.where(b > 0, array(sites.omega)[0], 1.0)
    a = MODEL.solve(tensor(task.K), task.labels, sites.omega, tensor(r)[None])
    assert_close(array(a)[0], unvec(dense.a, task.n_way), 1e-8)


@pytest.mark.parametrize(("n", "n_way", "nodes"), [(2, 2, 22), (1, 3, 40), (1, 4, 22)])
@pytest.mark.parametrize("mean", [0.0, -1.0])
def test_the_stationary_distribution_is_the_posterior(n, n_way, nodes, mean):
    task = make_task(n, n_way, 1.0, y=np.arange(n) % n_way, seed=n_way)
    chain = gibbs(
        MODEL, tensor(task.K), task.labels, n_way, n_chains=2000, n_steps=60, burn_in=30, thin=3, mean=mean, seed=1
    )
    moments = logistic_softmax_posterior(task.K, task.y, n_way, nodes, mean)
    assert_posterior_moments(chain, moments, slack=1e-5)  # finer rules change the moments by less


def test_ranks_of_the_truth_are_uniform_for_three_classes():
    task = make_task(n=8, n_way=3, log_scale=1.5, seed=2)
    assert_calibrated(calibration_ranks(MODEL, task.K, n_way=3, mean=0.5, n_tasks=500, n_steps=20))


def test_the_augmentations_given_f_have_their_exact_moments():
    f = torch.tensor([[1.0, -2.0, 0.3]]).double()
    label = np.array([[0.0, 1.0, 0.0]])
    rate, counts, omega = MODEL.augment(f.expand(20_000, 1, 3), torch.tensor([1]), [np.random.default_rng(0)])
    total = expit(array(f)).sum()
    expected_counts = expit(-array(f)) / total
    assert_mean(array(rate), [1 / total])
    assert_mean(array(rate) ** 2, [2 / total**2])
    assert_mean(array(counts), expected_counts)
    # PG(b, c) has b times the mean of PG(1, c).
    unit = array(polya_gamma_mean(1.0, f))
    assert_mean(array(omega), (expected_counts + label) * unit)
    assert_mean(array(rate)[..., None] * array(counts), 2 * expected_counts / total)


def test_the_sites_are_those_of_the_counts():
    f, y = torch.randn(50, 4, 3, generator=torch.Generator().manual_seed(0)).double(), torch.tensor([0, 2, 1, 0])
    _, counts, omega = MODEL.augment(f, y, [np.random.default_rng(1)])
    sites = MODEL.draw_sites(f, y, [np.random.default_rng(1)])
    own = (y[:, None] == torch.arange(3)).double()
    assert torch.equal(sites.omega, omega)
    assert torch.equal(sites.kappa, (own - counts) / 2)
    assert ((omega > 0) == (counts + own > 0)).all()


@pytest.mark.parametrize("level", [-30.0, -60.0, -800.0])
def test_an_example_that_fits_no_class_has_finite_sites(level):
    # Sigmoids of exp(-30) need 1e12 Poisson counts, of exp(-800) infinitely many.
    f = torch.full((1, 1, 2), level, dtype=torch.float64)
    sites = MODEL.draw_sites(f, torch.tensor([0]), [np.random.default_rng(0)])
    assert torch.isfinite(sites.omega).all()
    assert torch.isfinite(sites.kappa).all()
