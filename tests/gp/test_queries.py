"""The query logits of all chains and their closed-form gradient against autograd through the dense formulas."""

import pytest
import torch
from torch import Tensor

from polyshot.gp import Logits, OneVsEachGP, gibbs, make_kernel


@pytest.mark.parametrize(
    ("batch", "n", "n_way", "n_query", "weights"),
    [
        ((), 7, 3, 4, False),
        ((2,), 25, 5, 10, False),
        ((1,), 12, 2, 3, False),
        ((2,), 6, 3, 0, False),
        ((3, 2), 9, 4, 5, True),
    ],
)
def test_query_logits_and_gradients_are_those_of_autograd(batch, n, n_way, n_query, weights):
    generator = torch.Generator().manual_seed(0)
    model = OneVsEachGP(1 + torch.arange(n_way**2).reshape(n_way, n_way).double() % 3 if weights else None)
    kernel = make_kernel("cosine", log_scale=1.0).double()
    x, queries = (
        torch.randn(*batch, size, 6, generator=generator, dtype=torch.float64, requires_grad=True)
        for size in (n, n_query)
    )
    mean = torch.randn(n_way, generator=generator, dtype=torch.float64, requires_grad=True)
    y = (torch.arange(n) % n_way).expand(*batch, n)
    K, covariances = kernel(x), (kernel(queries, x), kernel.diagonal(queries))
    sites = gibbs(model, K.detach(), y, n_way, n_chains=3, n_steps=2, latent=False, seed=0).draws

    def with_gradients(logits: Logits) -> list[Tensor]:
        weighted = [(part * torch.randn(part.shape, generator=generator.manual_seed(1)).double()) for part in logits]
        total = weighted[0].sum() + weighted[1].sum()
        leaves = [x, queries, mean, *kernel.parameters()]
        return [*logits, *torch.autograd.grad(total, leaves, retain_graph=True)]

    closed_form = with_gradients(model.query(K, y, sites, *covariances, mean))
    dense = with_gradients(model.condition(K, y, sites, mean).query(*covariances, mean))
    for one, other in zip(closed_form, dense, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)
