"""Query logits of the one-vs-each GP by expectation propagation, with their exact gradient.

The sites s = (omega, kappa) of expectation propagation solve s = Phi(s, K), where Phi is one sweep. They depend on K.
So a gradient of the query logits has two parts: that at fixed sites, and that through the sites. By the implicit
function theorem a gradient g in s is one of (I - dPhi/ds)^-T g in Phi, whose derivative in K at fixed sites is known.

Everything is written in terms of psi, which has P = N (C - 1) entries. Entry p compares example i_p with class c_p by
the contrast vector A_p = e_y - e_c. With S_pq = K_ij A_p . A_q, R = (S + 1/omega)^-1 and W = I - R S,

    E[psi] = m = S a with a = W kappa = kappa - omega m,        Cov[psi] = V = S W
    E[f_*c] = sum_p k_*i A_pc a_p,          explained covariance sum_pq k_*i A_pc R_pq A_qd k_*j
    da = W (d kappa - m d omega) - R dS a,  dR = W d omega W^T - R dS R,    dV = W^T dS W - V d omega V

The cost is O(P^3): little for 5-way 5-shot, where P = 100, and much for many ways.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyshot.gp.inference.moment_matching import match_moments
from polyshot.gp.inference.propagation import fit_propagation
from polyshot.gp.models.one_vs_each import OneVsEachGP
from polyshot.gp.models.posterior import Logits, cholesky, one_hot, outer_products
from polyshot.gp.shapes import KernelMatrix, Labels, QueryCovariances, QueryVariances

_STEP = 1e-4  # of the central differences, in standard deviations of the cavity


def propagation_logits(
    model: OneVsEachGP,
    K: KernelMatrix,
    y: Labels,
    K_star: QueryCovariances,
    k_star_star: QueryVariances,
    n_way: int,
    *,
    tolerance: float = 1e-3,
) -> Logits:
    """The posterior of the query logits as one chain, differentiable in every covariance.

    Parameters
    ----------
    model : OneVsEachGP
        The classifier, with unit weights.
    K, y : Tensor
        Kernel matrix [*batch, N, N] and labels [*batch, N] of the support set.
    K_star, k_star_star : Tensor
        Covariances of the queries with the support set [*batch, Q, N], and the queries' own variances [*batch, Q].
    n_way : int
        The number of classes.
    tolerance : float
        That of `fit_propagation`.
    """
    sites = fit_propagation(model, K.detach(), y, n_way, tolerance=tolerance).sites
    others = torch.arange(n_way - 1, device=y.device)
    others = others + (others >= y[..., None])
    omega, kappa = (x.squeeze(-3).gather(-1, others).flatten(-2) for x in sites)
    A = one_hot(y, n_way)[..., :, None, :].to(K) - one_hot(others, n_way).to(K)  # [*batch, N, C - 1, C]
    mean, explained = _Posterior.apply(K, K_star, A, omega, kappa)  # type: ignore[no-untyped-call]
    prior = torch.diag_embed(k_star_star[..., None].expand(mean.shape))
    return Logits(mean[..., None, :, :], (prior - explained)[..., None, :, :, :])


class _Posterior(torch.autograd.Function):
    """Mean and explained covariance of the query logits, and their gradients in K and K_*."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, K_star: Tensor, A: Tensor, omega: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor]:
        n, each, n_way = A.shape[-3:]
        flat = A.flatten(-3, -2)
        contrasts = flat @ flat.mT
        S = K.repeat_interleave(each, -2).repeat_interleave(each, -1) * contrasts
        identity = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
        root = omega.sqrt()
        scale = root[..., :, None] * root[..., None, :]
        R = scale * torch.cholesky_inverse(cholesky(identity + scale * S))
        W = identity - R @ S
        a = W @ kappa[..., None]
        by_example = (a.reshape(*A.shape[:-1], 1) * A).sum(-2)  # [*batch, N, C]
        left = torch.einsum("...nac,...namb->...ncmb", A, R.reshape(*A.shape[:-1], n, each))
        G = torch.einsum("...ncmb,...mbd->...nmcd", left, A)
        explained = outer_products(K_star) @ G.flatten(-4, -3).flatten(-2)
        ctx.save_for_backward(K_star, A, contrasts, omega, kappa, S, R, W, a, by_example, G)
        return K_star @ by_example, explained.reshape(*explained.shape[:-1], n_way, n_way)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, g_explained: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        K_star, A, contrasts, omega, kappa, S, R, W, a, by_example, G = ctx.saved_tensors
        n, each, _ = A.shape[-3:]
        # Y and T are the gradients in a and R at fixed sites.
        Y = ((K_star.mT @ g)[..., None, :] * A).sum(-1).flatten(-2)[..., None]
        symmetric = ((g_explained + g_explained.mT) / 2).flatten(-2)
        blocks = (outer_products(K_star).mT @ symmetric).reshape(G.shape)
        left = torch.einsum("...nac,...nmcd->...namd", A, blocks)
        T = torch.einsum("...namd,...mbd->...namb", left, A).flatten(-2).flatten(-3, -2)
        # the gradient with respect to the sites, and through them to the mean and the variance of psi
        in_kappa = (W.mT @ Y).squeeze(-1)
        m, V = (S @ a).squeeze(-1), S @ W
        in_omega = ((T @ W) * W).sum(-2) - m * in_kappa
        in_m, in_v = _through_sites(torch.cat([in_omega, in_kappa], -1), V, m, omega, kappa)
        in_S = (W @ in_m[..., None] - R @ Y) @ a.mT + (W * in_v[..., None, :]) @ W.mT - R @ T @ R
        in_K = (in_S * contrasts).unflatten(-1, (n, each)).sum(-1).unflatten(-2, (n, each)).sum(-2)
        by_covariance = (symmetric @ G.flatten(-4, -3).flatten(-2).mT).unflatten(-1, (n, n)) @ K_star[..., None]
        in_K_star = g @ by_example.mT + 2 * by_covariance.squeeze(-1)
        return (in_K + in_K.mT) / 2, in_K_star, None, None, None


def _through_sites(g: Tensor, V: Tensor, m: Tensor, omega: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor]:
    """Turn a gradient in the sites [*batch, 2 P] into one in m and v = diag(V), as arguments of a sweep."""
    v = V.diagonal(dim1=-2, dim2=-1)
    variance = 1 / (1 / v - omega)  # of the cavity
    mean = (m / v - kappa) * variance
    in_mean, in_variance = _STEP * variance.sqrt(), _STEP * variance
    by_mean = (_match(mean + in_mean, variance) - _match(mean - in_mean, variance)) / (2 * in_mean)
    by_variance = (_match(mean, variance + in_variance) - _match(mean, variance - in_variance)) / (2 * in_variance)
    share = variance / v
    by_m = by_mean * share
    by_v = (by_mean * (mean - m) + by_variance * variance) * share / v
    by_omega = (by_mean * mean + by_variance * variance) * variance
    by_kappa = -by_mean * variance
    slopes = []
    for k in range(2):  # of the new omega, and of the new kappa
        in_kappa = by_m[k][..., None] * V
        in_omega = -in_kappa * m[..., None, :] - by_v[k][..., None] * V.square()
        slopes.append(
            torch.cat([in_omega + torch.diag_embed(by_omega[k]), in_kappa + torch.diag_embed(by_kappa[k])], -1)
        )
    slope = torch.cat(slopes, -2)
    identity = torch.eye(slope.shape[-1], dtype=slope.dtype, device=slope.device)
    in_sweep = torch.linalg.solve(identity - slope.mT, g).unflatten(-1, (2, -1)).movedim(-2, 0)
    return (in_sweep * by_m).sum(0), (in_sweep * by_v).sum(0)


def _match(mean: Tensor, variance: Tensor) -> Tensor:
    """The sites of these cavities [2, *batch, P]."""
    return torch.stack(match_moments(mean, variance, torch.ones_like(mean, dtype=torch.bool))[:2])
