"""Query logits of the one-vs-each GP and their gradient, for all chains at once.

With F = [F1, F2] (star.Star.factors) and D = diag(-1, 1) on its two halves, G_cc' = [c = c'] R_c + F_c D F_c'^T. For a
query k the mean is k a and the explained covariance k G_cc' k^T. From dG = -G dK G, the same dK for every class, and
gradients g_c with respect to each query's mean and S_cc' with respect to its explained covariance, follow the gradients
below. h_c is the sum over the queries of g_c k, and T_cc' that of S_cc' k k^T.

    in k:  sum_c g_c a_c + 2 sum_cc' S_cc' G_cc' k
    in K:  -sum_c (G T G)_cc - sum_c e_c a_c^T,   e = G h
    in r:  omega (x_y - x_c),                     x = h - K e

T is only needed in products with F, so the cost is O(C N^2 (N + Q)) per chain, and no factorisation is differentiated.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyshot.gp.models.posterior import outer_products, own
from polyshot.gp.models.star import Star
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
        star, _ = Star.of(K, y, omega)
        a = star.solve(r, y)
        F1, F2 = star.factors()
        F, n = torch.cat([F1, F2], -1), K.shape[-1]
        k = K_star[..., None, :, :]
        shape = (*r.shape[:-2], K_star.shape[-2], r.shape[-1], 2 * n)
        P = (k @ F.movedim(-2, -3).flatten(-2)).reshape(shape)  # K_* F
        P1, P2 = P[..., :n], P[..., n:]
        explained = P2 @ P2.mT - P1 @ P1.mT
        own_class = star.R.flatten(-2) @ outer_products(K_star).mT[..., None, :, :]
        explained.diagonal(dim1=-2, dim2=-1).add_(own_class.mT)
        ctx.save_for_backward(K, K_star, y, omega, a, star.R, F, P)
        return k @ a, explained

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, S: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        K, K_star, y, omega, a, R, F, P = ctx.saved_tensors
        n_way, n = R.shape[-3:-1]
        kT = K_star.mT[..., None, :, :]
        S = (S + S.mT) / 2
        s = S.diagonal(dim1=-2, dim2=-1).mT  # [*batch, M, C, Q]
        U = S @ P
        FD = torch.cat([-F[..., :n], F[..., n:]], -1)
        FDT = FD.mT.contiguous()
        outer = outer_products(K_star)
        T = (s @ outer[..., None, :, :]).reshape(R.shape)  # its blocks T_cc
        TF = (kT @ U.flatten(-2)).unflatten(-1, (n_way, -1)).movedim(-2, -3)
        FTF = F.flatten(-3, -2).mT @ TF.flatten(-3, -2)
        # (G T G)_cc = R T R + R T F D F^T + F D F^T T R + F D F^T T F D F^T; a half whose transpose is the other one
        FDFTF = (FD.flatten(-3, -2) @ FTF).unflatten(-2, (n_way, n))
        half = _summed(R, T @ R / 2 + TF @ FDT) + _summed(FDFTF.mT, FDT / 2)

        h = kT @ g
        back = (F.mT @ h.mT[..., None]).sum(-3, keepdim=True)
        e = (R @ h.mT[..., None] + FD @ back).squeeze(-1).mT
        half = half + (e @ a.mT / 2).sum(-3)
        x = h - K[..., None, :, :] @ e
        in_r = omega * (own(x, y)[..., None] - x)

        by_mean = g @ a.mT
        by_others = U.flatten(-2) @ FDT.flatten(-3, -2)
        by_own = (s.flatten(-3, -2).mT @ R.flatten(-4, -3).flatten(-2)).unflatten(-1, (n, n)) @ K_star[..., None]
        in_K_star = (by_mean + 2 * by_others).sum(-3) + 2 * by_own.squeeze(-1)
        return -half - half.mT, in_r, in_K_star, None, None


def _summed(X: Tensor, Z: Tensor) -> Tensor:
    """Sum over chains and classes of X^T Z, for X, Z [*batch, M, C, W, N]."""
    return X.flatten(-4, -2).mT @ Z.flatten(-4, -2)
