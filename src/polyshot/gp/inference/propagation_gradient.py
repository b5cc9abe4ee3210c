"""Query logits of the one-vs-each GP by expectation propagation, with their exact gradient.

The sites s = (omega, kappa) of expectation propagation solve s = Phi(s, K), where Phi is one sweep. They depend on K, so
a gradient of the query logits has two parts: that at fixed sites, and that through the sites. By the implicit function
theorem a gradient g in s is one of (I - dPhi/ds)^-T g in Phi, whose derivative in K at fixed sites is known.

Everything is written in terms of psi, which has P = N (C - 1) entries. Entry p compares example i_p with class c_p by
the contrast vector A_p = e_y - e_c. With S_pq = K_ij A_p . A_q and R = (S + 1/omega)^-1,

    V = S - S R S = Cov[psi],  m = V kappa = E[psi],  d m = V (d kappa - m d omega),  d diag(V) = -V^2 d omega
    a = kappa - R S kappa,     E[f_*c] = sum_p k_*i A_pc a_p,  explained covariance sum_pq k_*i A_pc R_pq A_qd k_*j

The cost is O(P^3): little for 5-way 5-shot, where P = 100, and much for many ways.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyshot.gp.inference.moment_matching import match_moments
from polyshot.gp.inference.propagation import fit_propagation
from polyshot.gp.models.one_vs_each import OneVsEachGP
from polyshot.gp.models.posterior import Logits, cholesky, one_hot
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
    index = _others(y, n_way)
    s = torch.stack([x.squeeze(-3).gather(-1, index).flatten(-2) for x in sites], -2)  # [*batch, 2, P]
    A = one_hot(y, n_way)[..., :, None, :].to(K) - one_hot(index, n_way).to(K)  # [*batch, N, C - 1, C]
    S = _prior(K, A)
    if K.requires_grad:
        s = _sites_with_gradient(S, s)
    R = _precision(S, s)
    omega_free = (s[..., 1, :, None] - R @ (S @ s[..., 1, :, None])).squeeze(-1).unflatten(-1, index.shape[-2:])
    mean = K_star @ (omega_free[..., None] * A).sum(-2)
    n = K.shape[-1]
    blocks = R.unflatten(-1, (n, n_way - 1)).unflatten(-3, (n, n_way - 1))
    G = torch.einsum("...nac,...namb,...mbd->...nmcd", A, blocks, A)
    outer = (K_star[..., :, None] * K_star[..., None, :]).flatten(-2)
    explained = (outer @ G.flatten(-4, -3).flatten(-2)).unflatten(-1, (n_way, n_way))
    prior = torch.diag_embed(k_star_star[..., None].expand(mean.shape))
    return Logits(mean[..., None, :, :], (prior - explained)[..., None, :, :, :])


def _others(y: Tensor, n_way: int) -> Tensor:
    """The C - 1 classes other than the example's own [*batch, N, C - 1]."""
    others = torch.arange(n_way - 1, device=y.device)
    return others + (others >= y[..., None])


def _prior(K: Tensor, A: Tensor) -> Tensor:
    """S, the prior covariance of psi [*batch, P, P]."""
    contrasts = A.flatten(-3, -2)
    each = A.shape[-2]
    return K.repeat_interleave(each, -2).repeat_interleave(each, -1) * (contrasts @ contrasts.mT)


def _precision(S: Tensor, s: Tensor) -> Tensor:
    """R = (S + 1/omega)^-1."""
    root = s[..., 0, :].sqrt()
    outer = root[..., :, None] * root[..., None, :]
    identity = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    return outer * torch.cholesky_inverse(cholesky(identity + outer * S))


class _Moments(NamedTuple):
    mean: Tensor
    variance: Tensor
    omega: Tensor
    kappa: Tensor


def _sites_with_gradient(S: Tensor, s: Tensor) -> Tensor:
    """The sites, as a function of S."""
    V = S - S @ _precision(S, s) @ S
    moments = _Moments((V @ s[..., 1, :, None]).squeeze(-1), V.diagonal(dim1=-2, dim2=-1), *s.unbind(-2))
    swept = _swept(moments)
    slope = _slope_of_sweep(V.detach(), _Moments(*(x.detach() for x in moments)))
    identity = torch.eye(slope.shape[-1], dtype=S.dtype, device=S.device)
    shape = swept.shape
    swept.register_hook(lambda g: torch.linalg.solve(identity - slope.mT, g.flatten(-2)).reshape(shape))
    return s + swept - swept.detach()


def _swept(moments: _Moments) -> Tensor:
    """The sites that match the moments of every cavity [*batch, 2, P]."""
    precision = 1 / moments.variance - moments.omega
    mean = (moments.mean / moments.variance - moments.kappa) / precision
    result: Tensor = _Match.apply(mean, 1 / precision)  # type: ignore[no-untyped-call]
    return result


def _slope_of_sweep(V: Tensor, moments: _Moments) -> Tensor:
    """dPhi/ds [*batch, 2 P, 2 P]."""
    with torch.enable_grad():
        leaves = _Moments(*(x.clone().requires_grad_() for x in moments))
        swept = _swept(leaves)
        slopes = [_Moments(*torch.autograd.grad(part.sum(), leaves, retain_graph=True)) for part in swept.unbind(-2)]
    rows = []
    for by in slopes:  # of omega, then of kappa
        in_kappa = by.mean[..., None] * V
        in_omega = -in_kappa * moments.mean[..., None, :] - by.variance[..., None] * V.square()
        rows.append(torch.cat([in_omega + torch.diag_embed(by.omega), in_kappa + torch.diag_embed(by.kappa)], -1))
    return torch.cat(rows, -2)


class _Match(torch.autograd.Function):
    """Moment matching of all sites; its derivatives by central differences of the closed forms."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor) -> Tensor:
        ctx.save_for_backward(mean, variance)
        return _match(mean, variance)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = ctx.saved_tensors
        in_mean, in_variance = _STEP * variance.sqrt(), _STEP * variance
        by_mean = _match(mean + in_mean, variance) - _match(mean - in_mean, variance)
        by_variance = _match(mean, variance + in_variance) - _match(mean, variance - in_variance)
        return (g * by_mean).sum(-2) / (2 * in_mean), (g * by_variance).sum(-2) / (2 * in_variance)


def _match(mean: Tensor, variance: Tensor) -> Tensor:
    there = torch.ones_like(mean, dtype=torch.bool)
    return torch.stack(match_moments(mean, variance, there)[:2], -2)
