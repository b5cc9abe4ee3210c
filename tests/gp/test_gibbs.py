from itertools import islice

import numpy as np
import pytest
import torch
from checks import assert_close, assert_mean
from integration import one_vs_each_posterior
from oracle import Dense, array
from sampling import assert_calibrated, assert_posterior_moments, calibration_ranks
from scipy.special import expit
from tasks import make_task, tensor

from polyshot.gp import (
    Cosine,
    OneVsEachGP,
    Prior,
    Sites,
    draw_latent,
    draw_prior,
    gibbs,
    gibbs_states,
    polya_gamma_mean,
    predict,
    propagation_start,
    variational_start,
)

MODEL = OneVsEachGP()
STARTS = ["prior", "mean", variational_start, propagation_start]
# N, C, nodes a dimension of N (C - 1): from one rule to the next finer one the moments move by less than 3e-3.
SMALL = [(3, 2, 40), (2, 3, 22), (1, 4, 40), (2, 4, 10)]
SLACK = 3e-3


def small_task(n, n_way, log_scale=1.0):
    return make_task(n, n_way, log_scale, y=np.arange(n) % n_way, seed=n_way)


def prior_of(task, mean=0.0):
    mean = torch.as_tensor(mean, dtype=torch.float64).expand(1, len(task.y), task.n_way)
    return Prior(tensor(task.K), tensor(task.root), mean)


@pytest.mark.parametrize(("n", "n_way", "nodes"), SMALL)
@pytest.mark.parametrize("start", STARTS)
def test_the_stationary_distribution_is_the_posterior(n, n_way, nodes, start):
    task = small_task(n, n_way)
    mean = 0.5 * task.mean
    options = {"n_chains": 2000, "n_steps": 40, "burn_in": 20, "start": start, "mean": tensor(mean), "seed": 1}
    chain = gibbs(MODEL, tensor(task.K), task.labels, n_way, **options)
    assert_posterior_moments(chain, one_vs_each_posterior(task.K, task.y, n_way, nodes, mean), SLACK)


def test_weighted_comparisons_have_the_posterior_of_repeated_ones():
    # Weight 3 on the only comparison of C = 2: the likelihood sigmoid(psi)^3 is that of three equal examples.
    task = small_task(1, 2)
    model = OneVsEachGP(torch.full((2, 2), 3.0))
    chain = gibbs(model, tensor(task.K), task.labels, 2, n_chains=2000, n_steps=40, burn_in=20, seed=0)
    thrice = one_vs_each_posterior(np.tile(task.K, (3, 3)), task.y.repeat(3), 2, 60)
    first = [0, 3]
    moments = thrice._replace(mean=thrice.mean[first], second=thrice.second[np.ix_(first, first)])
    assert_posterior_moments(chain, moments, 1e-4)


def test_ranks_of_the_truth_are_uniform_for_two_classes():
    task = make_task(n=4, n_way=2, log_scale=1.5, seed=2)
    assert_calibrated(calibration_ranks(MODEL, task.K, n_way=2))


def test_the_exact_predictive_of_two_classes_is_found():
    task = small_task(3, 2, log_scale=1.5)
    chain = gibbs(MODEL, tensor(task.K), task.labels, 2, n_chains=4000, n_steps=30, seed=3, latent=False)
    each = [
        predict(MODEL, tensor(task.K), task.labels, Sites(*(part[i::100] for part in chain.draws)),
                tensor(task.K_star), tensor(task.k_star_star), rule="sigmoid").log_probs.exp()
        for i in range(100)
    ]  # fmt: skip
    # p(y_* = 0 | Y) is a ratio of evidences, with the query as one more example of class 0.
    base = one_vs_each_posterior(task.K, task.y, 2, 40).log_evidence
    for q in range(len(task.root_star)):
        root = np.vstack([task.root, task.root_star[q]])
        joint = one_vs_each_posterior(root @ root.T, np.append(task.y, 0), 2, 40).log_evidence
        assert_mean([float(p[q, 0]) for p in each], np.exp(joint - base), slack=1e-4)  # 2e-5 from 40 nodes to 50


def test_sites_given_f_are_polya_gamma_of_the_differences():
    task = make_task(n=3, n_way=3, y=[0, 2, 2])
    f = tensor(task.mean).expand(20_000, 3, 3)
    sites = MODEL.draw_sites(f, task.labels, [np.random.default_rng(0)])
    psi = np.take_along_axis(task.mean, task.y[:, None], 1) - task.mean
    there = torch.from_numpy(task.y[:, None] != np.arange(3))
    assert_mean(array(sites.omega), array(torch.where(there, polya_gamma_mean(1.0, tensor(psi)), 0.0)))
    assert torch.equal(sites.kappa, (0.5 * there.double()).expand_as(f))
    assert ((sites.omega > 0) == there).all()


@pytest.mark.parametrize("kind", ["full", "rank one", "duplicates"])
def test_f_given_sites_is_the_dense_gaussian(kind):
    task = make_task(n=4, n_way=3, log_scale=1.0, kind=kind, y=[0, 1, 1, 0])
    sites = Sites(*(part.expand(20_000, 4, 3) for part in task.sites))
    f = array(draw_latent(MODEL, prior_of(task, tensor(task.mean)), task.labels, sites, [np.random.default_rng(0)]))
    dense = Dense(task.K, task.y, task.omega, task.kappa, mean=task.mean)
    assert_mean(f, dense.mean)
    centred = np.swapaxes(f - dense.mean, -1, -2).reshape(len(f), -1)
    assert_mean(centred[:, :, None] * centred[:, None, :], dense.covariance, slack=1e-12)


def test_the_prior_draw_has_the_mean_and_covariance_of_the_prior():
    task = make_task(n=3, n_way=2)
    f = array(draw_prior(prior_of(task, tensor(task.mean)), 20_000, [np.random.default_rng(0)]))
    stacked = np.swapaxes(f - task.mean, -1, -2).reshape(len(f), -1)
    assert_mean(f, task.mean)
    assert_mean(stacked[:, :, None] * stacked[:, None, :], np.kron(np.eye(2), task.K))


def test_the_chain_is_algorithm_one_step_by_step():
    task = make_task()
    y, rng = task.labels, [np.random.default_rng(5)]
    chain = gibbs(MODEL, tensor(task.K), y, 3, n_chains=2, n_steps=3, burn_in=0, root=tensor(task.root), seed=5)
    prior = prior_of(task)
    f = draw_prior(prior, 2, rng)
    for t in range(3):
        sites = MODEL.draw_sites(f, y, rng)
        f = draw_latent(MODEL, prior, y, sites, rng)
        assert_close(array(chain.f[t]), array(f), 1e-12)
        assert_close(array(chain.sites.omega[t]), array(sites.omega), 1e-12)


def test_the_states_of_a_chain_are_those_that_gibbs_keeps():
    task = make_task()
    prior, rng = prior_of(task), [np.random.default_rng(5)]
    first = MODEL.draw_sites(draw_prior(prior, 2, rng), task.labels, rng)
    states = list(islice(gibbs_states(MODEL, prior, task.labels, first, rng), 3))
    chain = gibbs(MODEL, tensor(task.K), task.labels, 3, n_chains=2, n_steps=3, burn_in=0, root=prior.root, seed=5)
    assert torch.equal(torch.stack([state.f for state in states]), chain.f)
    assert torch.equal(torch.stack([state.sites.omega for state in states]), chain.sites.omega)


def test_a_feature_map_may_stand_in_for_the_root_of_the_kernel():
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).double()
    kernel, y = Cosine(log_scale=1.0).double(), torch.tensor([0, 1, 0])
    K = kernel(x).detach()
    with_root = gibbs(MODEL, K, y, 2, n_chains=4000, n_steps=10, root=kernel.features(x).detach(), seed=0)
    moments = one_vs_each_posterior(array(K), array(y).astype(int), 2, 50)
    assert_posterior_moments(with_root, moments, SLACK)


@pytest.mark.parametrize(
    ("n_steps", "burn_in", "thin", "steps"),
    [(7, None, 1, [6]), (7, 0, 1, range(7)), (7, 2, 2, [2, 4, 6]), (7, 1, 4, [1, 5]), (1, 0, 1, [0])],
)
def test_burn_in_and_thinning_pick_their_steps(n_steps, burn_in, thin, steps):
    task = make_task()
    options = {"n_chains": 2, "n_steps": n_steps, "seed": 0}
    every = gibbs(MODEL, tensor(task.K), task.labels, 3, burn_in=0, **options)
    chain = gibbs(MODEL, tensor(task.K), task.labels, 3, burn_in=burn_in, thin=thin, **options)
    assert torch.equal(chain.f, every.f[list(steps)])
    assert torch.equal(chain.sites.omega, every.sites.omega[list(steps)])
    assert chain.draws.omega.shape == (2 * len(steps), 5, 3)
    assert torch.equal(chain.draws.omega[:2], every.sites.omega[steps[0]])


@pytest.mark.parametrize(("n_steps", "burn_in", "thin"), [(4, 1, 1), (4, 0, 2), (1, 0, 1)])
def test_leaving_out_f_changes_no_other_number(n_steps, burn_in, thin):
    task = make_task()
    options = {"n_chains": 2, "n_steps": n_steps, "burn_in": burn_in, "thin": thin, "seed": 0}
    with_f = gibbs(MODEL, tensor(task.K), task.labels, 3, **options)
    without = gibbs(MODEL, tensor(task.K), task.labels, 3, latent=False, **options)
    assert without.f is None
    assert torch.equal(with_f.sites.omega, without.sites.omega)


@pytest.mark.parametrize("start", STARTS)
def test_seeds_reproduce_and_threads_do_not_matter(start):
    task = make_task()
    run = [
        gibbs(MODEL, tensor(task.K), task.labels, 3, n_chains=5, n_steps=3, start=start, seed=seed).f
        for seed in (1, 1, 2)
    ]
    assert torch.equal(run[0], run[1])
    assert not torch.equal(run[0], run[2])
    torch.set_num_threads(2)
    try:
        threaded = gibbs(MODEL, tensor(task.K), task.labels, 3, n_chains=5, n_steps=3, start=start, seed=1).f
    finally:
        torch.set_num_threads(1)
    assert_close(array(threaded), array(run[0]), 1e-12)


def test_quadrature_of_the_posterior_agrees_with_importance_sampling():
    """Two independent routes to the reference itself, for C = 3."""
    task = small_task(2, 3)
    rng = np.random.default_rng(0)
    f = task.root @ rng.standard_normal((100_000, task.root.shape[1], 3))
    psi = np.take_along_axis(f, task.y[None, :, None], 2) - f
    weight = np.where(task.y[:, None] == np.arange(3), 1.0, expit(psi)).prod((1, 2))
    moments = one_vs_each_posterior(task.K, task.y, 3, 22)
    assert_mean(weight, np.exp(moments.log_evidence), slack=1e-5)
    stacked = np.swapaxes(f, 1, 2).reshape(len(f), -1)
    assert_mean(weight[:, None] * (stacked - moments.mean), np.zeros(6), slack=SLACK)
