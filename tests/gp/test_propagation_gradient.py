"""Propagation in training: query logits, their gradient through the sites, and the objectives that use them."""

import numpy as np
import pytest
import torch
from checks import central_difference
from integration import one_vs_each_posterior
from tasks import make_task, tensor

from polyshot.errors import InputError
from polyshot.gp import (
    RBF,
    LeastSquaresGP,
    OneVsEachGP,
    fit_propagation,
    log_evidence,
    marginal_likelihood,
    predict,
    predictive_likelihood,
)
from polyshot.gp.inference.propagation_gradient import propagation_logits

MODEL = OneVsEachGP()


def features(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(n, n_way, batch=()):
    """Features of support and query, labels, and a kernel."""
    return features(*batch, n, 4), features(*batch, 5, 4, seed=1), (torch.arange(n) ** 2 % n_way).expand(*batch, n)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_the_logits_are_those_of_propagation_and_the_star(batch):
    x, queries, y = made(7, 3, batch)
    kernel = RBF(1.0, 0.2).double()
    with torch.no_grad():
        K, covariances = kernel(x), (kernel(queries, x), kernel.diagonal(queries))
    logits = propagation_logits(MODEL, K, y, *covariances, 3)
    sites = fit_propagation(MODEL, K, y, 3, tolerance=1e-3).sites
    for one, other in zip(logits, MODEL.condition(K, y, sites).query(*covariances), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("n", "n_way"), [(4, 2), (7, 3), (6, 5)])
def test_the_gradient_is_that_of_finite_differences_with_the_sites_found_again(n, n_way):
    x, queries, y = made(n, n_way)
    kernel, direction = RBF(2.0, 0.2).double(), features(n, 4, seed=2)
    weights = [features(1, 5, *[n_way] * k, seed=3) for k in (1, 2)]

    def value(x):
        K, covariances = kernel(x), (kernel(queries, x), kernel.diagonal(queries))
        logits = propagation_logits(MODEL, K, y, *covariances, n_way, tolerance=1e-11)
        return sum((part * weight).sum() for part, weight in zip(logits, weights, strict=True))

    leaf = x.clone().requires_grad_()
    value(leaf).backward()
    in_scale = float(kernel.log_scale.grad)

    @torch.no_grad()
    def rescaled(t):
        kernel.log_scale.fill_(2.0 + t)
        return float(value(x))

    exact = [float((leaf.grad * direction).sum()), in_scale]
    moved = central_difference(lambda t: float(value(x + t * direction).detach()), 1e-3)
    assert exact == pytest.approx([moved, central_difference(rescaled, 1e-3)], rel=1e-6, abs=1e-8)


def test_the_logits_are_nearly_those_of_quadrature():
    task = make_task(2, 3, y=[0, 1], log_scale=1.0, seed=1)
    exact = one_vs_each_posterior(task.K, task.y, 3, 24)
    K = tensor(task.K)
    logits = propagation_logits(MODEL, K, task.labels, K, K.diagonal(), 3)
    mean = logits.mean[0].T.numpy().ravel()
    assert mean == pytest.approx(exact.mean, abs=5e-3)
    covariance = exact.second - np.outer(exact.mean, exact.mean)
    for i in range(2):
        own = np.arange(3) * 2 + i
        np.testing.assert_allclose(logits.covariance[0, i].numpy(), covariance[np.ix_(own, own)], atol=2e-2)


def test_pl_is_the_log_probability_that_prediction_by_propagation_gives_and_draws_nothing():
    x, queries, y = made(7, 3)
    kernel, labels = RBF(0.5, 0.2).double(), torch.tensor([2, 0, 1, 1, 0])
    values = [
        predictive_likelihood(MODEL, kernel, x, y, queries, labels, 3, sites="propagation", seed=seed)
        for seed in (0, 1)
    ]
    with torch.no_grad():
        K = kernel(x)
        sites = fit_propagation(MODEL, K, y, 3, tolerance=1e-3).sites
        prediction = predict(MODEL, K, y, sites, kernel(queries, x), kernel.diagonal(queries))
    expected = prediction.log_probs.gather(-1, labels[:, None]).sum()
    assert values[0].item() == values[1].item() == pytest.approx(expected.item(), rel=1e-10)


def test_ml_is_the_evidence_of_propagation():
    x, _, y = made(7, 3)
    kernel = RBF(0.5, 0.2).double()
    value = marginal_likelihood(MODEL, kernel, x, y, 3, sites="propagation")
    value.backward()
    before = float(kernel.log_scale.detach())

    def evidence(t):
        with torch.no_grad():
            K = RBF(before + t, 0.2).double()(x)
            return float(log_evidence(MODEL, K, y, fit_propagation(MODEL, K, y, 3, tolerance=1e-9)))

    assert value.item() == pytest.approx(evidence(0.0), abs=1e-5)
    assert float(kernel.log_scale.grad) == pytest.approx(central_difference(evidence, 1e-2), rel=2e-3)


def test_what_propagation_in_training_does_not_offer_is_refused():
    x, queries, y = made(7, 3)
    task = (RBF().double(), x, y, queries, torch.zeros(5, dtype=torch.long), 3)
    with pytest.raises(InputError, match="mean of zero"):
        predictive_likelihood(MODEL, *task, sites="propagation", mean=0.5)
    with pytest.raises(InputError, match="one-vs-each"):
        predictive_likelihood(LeastSquaresGP(0.5), *task, sites="propagation")
