"""What the support set explains of the query logits of the one-vs-each GP; formulas in compiled/queries.py."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.compiled.queries import query_chains, query_slopes
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.shapes import KernelMatrix, Labels, QueryCovariances, QueryLogitCovariances, QueryLogits, SiteArray


def explained_by_support(
    K: KernelMatrix, r: SiteArray, K_star: QueryCovariances, y: Labels, omega: SiteArray
) -> tuple[QueryLogits, QueryLogitCovariances]:
    """K_* a for a = A^T B^-1 r, and K_* G K_*^T, for every chain; differentiable in K, r and K_*."""
    result: tuple[Tensor, Tensor] = _Explained.apply(K, r, K_star, y, omega)  # type: ignore[no-untyped-call]
    return result


class _Explained(torch.autograd.Function):
    """K_* a and K_* G K_*^T of every chain, with their closed-form gradients in K, r and K_*."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, r: Tensor, K_star: Tensor, y: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        (n, n_way), q = omega.shape[-2:], K_star.shape[-2]
        flat = (K.reshape(-1, n, n), y.reshape(-1, n), omega.reshape(-1, n, n_way))
        task = [as_array(x) for x in flat]
        right, queries = as_array(r.reshape(-1, n, n_way)), as_array(K_star.reshape(len(task[0]), q, n))
        m, n4 = len(right), -(-n // 4) * 4
        factors = [np.zeros((m, n_way, *shape)) for shape in ((n,), (n4, n4), (n4, 2 * n4), (q, 2 * n4))]
        out = np.empty((m, q, n_way)), np.empty((m, q, n_way, n_way))
        in_threads(
            lambda first, last: query_chains(*task, right, queries, first, last, *factors, *out), m, _cost(n_way, n, q)
        )
        ctx.arrays, ctx.shapes = (*task, queries, *factors), (K.shape, r.shape, K_star.shape)
        shape = (*omega.shape[:-2], q, n_way)
        return as_tensor(out[0]).reshape(shape).to(K), as_tensor(out[1]).reshape(*shape, n_way).to(K)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, S: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        m, n, n_way = ctx.arrays[2].shape
        q = ctx.arrays[3].shape[1]
        grads = as_array(g.reshape(m, q, n_way)), as_array((S + S.mT).reshape(m, q, n_way, n_way) / 2)
        out = np.empty((m, n, n)), np.empty((m, q, n)), np.empty((m, n, n_way))
        in_threads(lambda first, last: query_slopes(*ctx.arrays, *grads, first, last, *out), m, 3 * _cost(n_way, n, q))
        in_K, in_K_star, in_r = (as_tensor(x).to(g) for x in out)
        of_K, of_r, of_K_star = ctx.shapes
        chains = of_r[:-2]
        in_K, in_K_star = (x.reshape(*chains, *x.shape[1:]).sum(-3) for x in (in_K, in_K_star))
        return in_K.reshape(of_K), in_r.reshape(of_r), in_K_star.reshape(of_K_star), None, None


def _cost(n_way: int, n: int, q: int) -> int:
    """Operations per chain."""
    return n_way * n**2 * (n + 3 * q)
