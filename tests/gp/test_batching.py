"""A batch [2, 3] of tasks gives the numbers of one task at a time with the same generators."""

from itertools import product

import numpy as np
import pytest
import torch
from checks import assert_close
from oracle import array
from tasks import make_task

from polyshot.gp import (
    RBF,
    LeastSquaresGP,
    LogisticSoftmaxGP,
    OneVsEachGP,
    elbo,
    fit_propagation,
    fit_variational,
    gibbs,
    log_evidence,
    marginal_likelihood,
    predict,
    predictive_likelihood,
    propagation_start,
    variational_start,
)

MODELS = [
    OneVsEachGP(),
    OneVsEachGP(torch.tensor([[1.0, 2, 1], [3, 1, 2], [1, 1, 1]])),
    LogisticSoftmaxGP(),
    LeastSquaresGP(0.5),
]
BATCH, N_WAY = (2, 3), 3
PLACES = list(product(range(2), range(3)))
SEEDS = list(range(10, 16))
# The same operations in another order of summation.
TOLERANCE = 1e-9


def stack(parts):
    return torch.stack([torch.as_tensor(part) for part in parts]).reshape(*BATCH, *np.shape(parts[0]))


@pytest.fixture(scope="module")
def batch():
    # Scales from exp(-2) to exp(3), so that iterations end at different times.
    tasks = [make_task(5, N_WAY, log_scale=i - 2.0, seed=seed) for i, seed in enumerate(SEEDS)]
    return {
        "K": stack([t.K for t in tasks]),
        "y": stack([t.y for t in tasks]),
        "K_star": stack([t.K_star for t in tasks]),
        "k_star_star": stack([t.k_star_star for t in tasks]),
        "x": stack([t.root for t in tasks]),
        "x_query": stack([t.root_star for t in tasks]),
        "y_query": stack([(t.y[:3] + 1) % N_WAY for t in tasks]),
        "mean": stack([t.mean for t in tasks]),
    }


def assert_each_task_alone(run, batch):
    """run(parts, seed) gives a list of tensors; for the whole batch, the stack of those of its tasks."""
    whole = run(batch, SEEDS)
    for seed, place in zip(SEEDS, PLACES, strict=True):
        alone = run({key: value[place] for key, value in batch.items()}, seed)
        for together, single in zip(whole, alone, strict=True):
            if together is None:  # a part of a Prediction that the model does not have
                assert single is None
                continue
            assert_close(array(together[place]), array(single), TOLERANCE)


@pytest.mark.parametrize(
    ("model", "start"),
    [(m, start) for m in MODELS for start in ("prior", "mean")]
    + [(m, variational_start) for m in MODELS[:2]]
    + [(MODELS[0], propagation_start)],
)
def test_chains_of_a_batch(model, start, batch):
    def run(b, seed):
        options = {"n_chains": 3, "n_steps": 4, "burn_in": 1, "thin": 2, "mean": b["mean"], "start": start}
        chain = gibbs(model, b["K"], b["y"], N_WAY, seed=seed, **options)
        return [chain.f, chain.sites.omega, chain.sites.kappa, chain.draws.omega]

    assert_each_task_alone(run, batch)


@pytest.mark.parametrize(
    ("model", "rule"),
    [(m, "monte-carlo") for m in MODELS] + [(m, rule) for m in MODELS[:2] for rule in ("sigmoid", "log-sigmoid")],
)
def test_predictions_of_a_batch(model, rule, batch):
    def run(b, seed):
        chain = gibbs(model, b["K"], b["y"], N_WAY, n_chains=3, n_steps=2, seed=seed, mean=b["mean"])
        star = (b["K_star"], b["k_star_star"])
        return list(predict(model, b["K"], b["y"], chain.draws, *star, mean=b["mean"], rule=rule, seed=seed))

    assert_each_task_alone(run, batch)


@pytest.mark.parametrize("model", MODELS)
def test_log_marginals_of_a_batch_and_their_gradients(model, batch):
    def run(b, seed):
        chain = gibbs(model, b["K"], b["y"], N_WAY, n_chains=3, n_steps=2, seed=seed)
        K, mean = b["K"].clone().requires_grad_(), b["mean"].clone().requires_grad_()
        value = model.log_marginal(K, b["y"], chain.draws, mean)
        (value * torch.arange(1, 4)).sum().backward()
        return [value, K.grad, mean.grad]

    assert_each_task_alone(run, batch)


@pytest.mark.parametrize("model", MODELS)
def test_objectives_of_a_batch_and_their_gradients(model, batch):
    def run(b, seed):
        x = b["x"].clone().requires_grad_()
        kernel, options = RBF(0.3).double(), {"n_chains": 3, "n_steps": 2, "seed": seed, "mean": 0.2}
        ml = marginal_likelihood(model, kernel, x, b["y"], N_WAY, **options)
        rule = "sigmoid" if isinstance(model, OneVsEachGP) else "monte-carlo"
        pl = predictive_likelihood(model, kernel, x, b["y"], b["x_query"], b["y_query"], N_WAY, rule=rule, **options)
        (ml + pl).sum().backward()
        return [ml, pl, x.grad]

    assert_each_task_alone(run, batch)


def test_propagation_of_a_batch(batch):
    def run(b, _):
        q = fit_propagation(MODELS[0], b["K"], b["y"], N_WAY, mean=b["mean"])
        return [*q.sites, log_evidence(MODELS[0], b["K"], b["y"], q, b["mean"])]

    assert_each_task_alone(run, batch)


@pytest.mark.parametrize("model", MODELS[:2])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-13])
def test_variational_posteriors_of_a_batch(model, tolerance, batch):
    def run(b, _):
        q = fit_variational(model, b["K"], b["y"], N_WAY, mean=b["mean"], tolerance=tolerance)
        return [q.tilt, q.sites.omega, elbo(model, b["K"], b["y"], q, b["mean"])]

    assert_each_task_alone(run, batch)


def test_one_seed_for_a_batch_is_reproducible_and_gives_every_task_its_own_draws(batch):
    K, y = batch["K"][:1, :1].expand(2, 3, 5, 5), batch["y"][:1, :1].expand(2, 3, 5)
    first, second = (gibbs(OneVsEachGP(), K, y, N_WAY, n_chains=2, n_steps=2, seed=3).f for _ in range(2))
    assert torch.equal(first, second)
    flat = first.reshape(6, -1)
    assert all(not torch.equal(flat[i], flat[j]) for i in range(6) for j in range(i))


def test_generators_may_be_given_in_place_of_seeds(batch):
    generators = [np.random.default_rng(seed) for seed in SEEDS]
    by_generator, by_seed = (
        gibbs(OneVsEachGP(), batch["K"], batch["y"], N_WAY, n_chains=2, n_steps=2, seed=seed).f
        for seed in (generators, SEEDS)
    )
    assert torch.equal(by_generator, by_seed)


def test_a_batch_may_be_a_view(batch):
    K, y = batch["K"].transpose(0, 1), batch["y"].transpose(0, 1)
    view, copy = (
        gibbs(OneVsEachGP(), *pair, N_WAY, n_chains=2, n_steps=2, seed=SEEDS).f
        for pair in ((K, y), (K.contiguous(), y.contiguous()))
    )
    assert torch.equal(view, copy)
