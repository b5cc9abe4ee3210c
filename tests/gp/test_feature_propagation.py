"""The tied posterior in feature space, against the one by the kernel matrix."""

import pytest
import torch

from polyshot.gp import FactoredKernel, FeatureConditional, TiedConditional


def task(n: int, d: int, n_way: int) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(n + d + n_way)
    phi = 2 * torch.randn(n, d, generator=g, dtype=torch.float64)
    y = torch.cat([torch.arange(n_way), torch.randint(0, n_way, (n - n_way,), generator=g)])
    w = 0.01 + 0.3 * torch.rand(n, generator=g, dtype=torch.float64)
    kappa = torch.randn(n, n_way, generator=g, dtype=torch.float64)
    kappa[torch.arange(n), y] = 0
    return phi, y, w, kappa


@pytest.mark.parametrize(("n", "d", "n_way"), [(30, 7, 3), (40, 12, 5), (12, 20, 2), (40, 30, 12)])
def test_features_give_the_posterior_of_their_kernel_matrix(n: int, d: int, n_way: int) -> None:
    phi, y, w, kappa = task(n, d, n_way)
    dual, primal = (
        TiedConditional.of(phi @ phi.mT, y, w, kappa),
        FeatureConditional.of(FactoredKernel(phi), y, w, kappa),
    )
    for theirs, ours in zip(dual.contrasts(), primal.contrasts(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)
    assert primal.log_integral == pytest.approx(dual.log_integral, abs=1e-10)
    queries = torch.randn(6, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theirs, ours = (
        dual.query(queries @ phi.mT, queries.square().sum(-1)),
        primal.query(queries, queries.square().sum(-1)),
    )
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=0, atol=1e-11)
    torch.testing.assert_close(ours.covariance, theirs.covariance, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("n", "d", "n_way"), [(40, 12, 5), (40, 30, 12), (40, 5, 3)])
def test_without_a_variance_for_each_pair_an_example_has_their_mean(n: int, d: int, n_way: int) -> None:
    """Few examples per class for the features, many, and some of both."""
    phi, y, w, kappa = task(n, d, n_way)
    each, mean = (
        FeatureConditional.of(FactoredKernel(phi, pair), y, w, kappa).contrasts()[1] for pair in (True, False)
    )
    torch.testing.assert_close(mean.sum(1), each.sum(1), rtol=0, atol=1e-11)
    assert bool((mean[torch.arange(40), y] == 0).all())
    assert float((mean - each).abs().max()) > 1e-3
