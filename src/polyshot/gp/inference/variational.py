"""The closed-form variational posterior of the one-vs-each GP: q(f) Gaussian, q(omega) Pólya-Gamma.

Coordinate ascent on the ELBO of the augmented model. Given q(omega) = PG(b, c), the best q(f) is the Gaussian
conditional at omega = E[omega]; given q(f), the best c is the root mean square of psi. At the optimum

    ELBO = log p(Y | X, E[omega]) - sum KL(PG(b, c) | PG(b, 0))

so its gradient with respect to K and the mean is that of the first term (the envelope theorem).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from polyshot.errors import InputError
from polyshot.gp.models.one_vs_each import OneVsEachGP
from polyshot.gp.models.posterior import Mean, Sites, full_mean, residual
from polyshot.gp.polya_gamma import polya_gamma_mean
from polyshot.gp.validation import check_positive_count, check_task

_LONGEST_STEP = 32.0


class Variational(NamedTuple):
    """q(omega) = PG(b, tilt), as sites at its mean (one "chain"), and how the ascent ended."""

    tilt: Float[Tensor, "*batch n c"]
    sites: Sites
    n_iterations: int
    converged: bool


@torch.no_grad()
def fit_variational(
    model: OneVsEachGP,
    K: Float[Tensor, "*batch n n"],
    y: Int[Tensor, "*batch n"],
    n_way: int,
    *,
    mean: Mean = 0.0,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    start: Float[Tensor, "*batch n c"] | None = None,
) -> Variational:
    """Ascend until no E[omega] changes by more than `tolerance` of itself; `start` is a tilt to begin from."""
    K, y = check_task(K, y, n_way)
    b = model.comparisons(y, n_way)
    mu = full_mean(mean, b.shape, K)
    if start is None:  # the root mean square of psi under the prior: near the answer at every scale of K
        start = (2 * K.diagonal(dim1=-2, dim2=-1)).sqrt()[..., None].expand(b.shape)
    elif start.shape != b.shape:
        raise InputError(f"start must be a tilt of shape {tuple(b.shape)}; its shape is {tuple(start.shape)}")
    check_positive_count("max_iterations", max_iterations)
    tilt = last = torch.where(b > 0, start.double().clamp(min=1e-6), 0.0)
    omega = polya_gamma_mean(b, tilt)
    # A finished task stays as it is while others go on, so that it does not depend on them.
    active = torch.ones(*y.shape[:-1], 1, 1, dtype=torch.bool, device=K.device)
    for iteration in range(1, max_iterations + 1):
        before, last = last, tilt
        tilt = torch.where(active, _tilt(model, K, y, _sites(omega, b), mu), tilt)
        updated = polya_gamma_mean(b, tilt)
        change = ((updated - omega).abs() / updated.clamp(min=1e-300)).amax((-2, -1), keepdim=True)
        omega, active = updated, active & (change > tolerance)
        if not bool(active.any()):
            break
        if iteration % 2 == 0:
            tilt = torch.where(active, _extrapolate(before, last, tilt), tilt)
            omega = polya_gamma_mean(b, tilt)
    return Variational(tilt, _sites(omega, b), iteration, not bool(active.any()))


def elbo(
    model: OneVsEachGP,
    K: Float[Tensor, "*batch n n"],
    y: Int[Tensor, "*batch n"],
    q: Variational,
    mean: Mean = 0.0,
) -> Float[Tensor, "*batch"]:
    """Lower bound on log p(Y | X), differentiable in K and the mean at fixed q(omega)."""
    K, y = check_task(K, y, q.tilt.shape[-1])
    b = 2 * q.sites.kappa.squeeze(-3)
    # KL(PG(b, c) | PG(b, 0)) = b (log cosh(c / 2) - c / 4 tanh(c / 2))
    log_cosh = q.tilt / 2 + softplus(-q.tilt) - np.log(2.0)
    divergence: Tensor = b * (log_cosh - q.tilt / 4 * torch.tanh(q.tilt / 2))
    return model.log_marginal(K, y, q.sites, mean).squeeze(-1) - divergence.sum((-2, -1))


def draw_variational_sites(
    model: OneVsEachGP,
    q: Variational,
    y: Int[Tensor, "*batch n"],
    n_chains: int,
    generators: Sequence[np.random.Generator],
) -> Sites:
    """omega ~ q(omega) for each chain."""
    tilt = q.tilt[..., None, :, :].expand(*q.tilt.shape[:-2], n_chains, *q.tilt.shape[-2:])
    return model.sites_at(tilt, y, generators)


def _sites(omega: Tensor, b: Tensor) -> Sites:
    return Sites(omega[..., None, :, :], (b / 2)[..., None, :, :])


def _tilt(model: OneVsEachGP, K: Tensor, y: Tensor, sites: Sites, mean: Tensor) -> Tensor:
    """Root of E[psi^2] under q(f), the Gaussian conditional at the sites; zero at the own class."""
    psi_mean = model.contrast(mean[..., None, :, :], y)
    a, variance = model.solve_with_variance(K, y, sites.omega, residual(sites, psi_mean))
    psi = psi_mean + model.contrast(K[..., None, :, :] @ a, y)
    return (psi**2 + variance).sqrt().squeeze(-3)


def _extrapolate(c0: Tensor, c1: Tensor, c2: Tensor) -> Tensor:
    """SQUAREM (Varadhan & Roland 2008) on the logarithms, from two plain steps c0 -> c1 -> c2; step length by task."""
    there = c1 > 0
    l0, l1, l2 = (torch.where(there, c, 1.0).log() for c in (c0, c1, c2))
    r, v = l1 - l0, (l2 - l1) - (l1 - l0)
    length = torch.linalg.vector_norm(r, dim=(-2, -1), keepdim=True) / torch.linalg.vector_norm(
        v, dim=(-2, -1), keepdim=True
    ).clamp(min=1e-300)
    length = length.clamp(1.0, _LONGEST_STEP)
    return torch.where(there, (l0 + 2 * length * r + length**2 * v).exp(), 0.0)
