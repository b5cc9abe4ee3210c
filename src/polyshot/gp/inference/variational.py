"""The closed-form variational posterior of the one-vs-each GP: q(f) Gaussian, q(omega) Pólya-Gamma.

Coordinate ascent on the ELBO of the augmented model. Given q(omega) = PG(b, c), the best q(f) is the Gaussian
conditional at omega = E[omega]; given q(f), the best c is the root mean square of psi. At the optimum

    ELBO = log p(Y | X, E[omega]) - sum KL(PG(b, c) | PG(b, 0))

so its gradient with respect to K and the mean is that of the first term (the envelope theorem).
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from polyshot.errors import InputError
from polyshot.gp.inference.gibbs import Prior
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.one_vs_each import OneVsEachGP, check_one_vs_each
from polyshot.gp.models.posterior import Sites, full_mean, residual
from polyshot.gp.polya_gamma import polya_gamma_mean
from polyshot.gp.shapes import Generators, KernelMatrix, Labels, Mean, PerClass, PerTask
from polyshot.gp.validation import check_positive_count, check_task

_LONGEST_STEP = 32.0


class Variational(NamedTuple):
    """The variational posterior q(omega) = PG(b, tilt).

    Attributes
    ----------
    tilt : Tensor [*batch, N, C]
        The c of each PG(b, c); zero at the example's own class.
    sites : Sites
        Sites at the mean of q(omega), as one chain.
    n_iterations : int
        The number of iterations.
    converged : bool
        Whether the ascent converged for every task.
    """

    tilt: PerClass
    sites: Sites
    n_iterations: int
    converged: bool


@torch.no_grad()
def fit_variational(
    model: OneVsEachGP,
    K: KernelMatrix,
    y: Labels,
    n_way: int,
    *,
    mean: Mean = 0.0,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    start: PerClass | None = None,
) -> Variational:
    """Find the variational posterior by coordinate ascent, accelerated by SQUAREM.

    Parameters
    ----------
    model : OneVsEachGP
        The classifier.
    K, y : Tensor
        Kernel matrix [*batch, N, N] and labels [*batch, N] of the support set.
    n_way : int
        The number of classes.
    mean : float or Tensor
        Prior mean.
    tolerance : float
        Stop when no E[omega] changes by more than this share of itself.
    max_iterations : int
        The largest number of iterations.
    start : Tensor [*batch, N, C], optional
        The tilt to start from.
    """
    K, y = check_task(K, y, n_way)
    b = model.comparisons(y, n_way)
    mu = full_mean(mean, b.shape, K)
    if start is None:  # the root mean square of psi under the prior: close to the answer at every scale of K
        start = (2 * K.diagonal(dim1=-2, dim2=-1)).sqrt()[..., None].expand(b.shape)
    elif start.shape != b.shape:
        raise InputError(f"start must be a tilt of shape {tuple(b.shape)}; its shape is {tuple(start.shape)}")
    check_positive_count("max_iterations", max_iterations)
    tilt = last = torch.where(b > 0, start.double().clamp(min=1e-6), 0.0)
    omega = polya_gamma_mean(b, tilt)
    # A finished task stays as it is while others continue, so that it does not depend on them.
    active = torch.ones(*y.shape[:-1], 1, 1, dtype=torch.bool, device=K.device)
    for iteration in range(1, max_iterations + 1):
        before, last = last, tilt
        tilt = torch.where(active & (b > 0), _tilt(model, K, y, _sites(omega, b), mu), tilt)
        updated = polya_gamma_mean(b, tilt)
        change = ((updated - omega).abs() / updated.clamp(min=1e-300)).amax((-2, -1), keepdim=True)
        omega, active = updated, active & (change > tolerance)
        if not bool(active.any()):
            break
        if iteration % 2 == 0:
            tilt = torch.where(active, _extrapolate(before, last, tilt), tilt)
            omega = polya_gamma_mean(b, tilt)
    return Variational(tilt, _sites(omega, b), iteration, not bool(active.any()))


def elbo(model: OneVsEachGP, K: KernelMatrix, y: Labels, q: Variational, mean: Mean = 0.0) -> PerTask:
    """Lower bound on log p(Y | X), differentiable in K and the mean with q(omega) held fixed.

    Parameters
    ----------
    model, K, y, mean
        As in `fit_variational`.
    q : Variational
        Its result.
    """
    K, y = check_task(K, y, q.tilt.shape[-1])
    b = 2 * q.sites.kappa.squeeze(-3)
    # KL(PG(b, c) | PG(b, 0)) = b (log cosh(c / 2) - c / 4 tanh(c / 2))
    log_cosh = q.tilt / 2 + softplus(-q.tilt) - np.log(2.0)
    divergence: Tensor = b * (log_cosh - q.tilt / 4 * torch.tanh(q.tilt / 2))
    return model.log_marginal(K, y, q.sites, mean).squeeze(-1) - divergence.sum((-2, -1))


def variational_start(model: GPModel, prior: Prior, y: Labels, n_chains: int, generators: Generators) -> Sites:
    """Start Gibbs chains at draws omega ~ q(omega): `gibbs(..., start=variational_start)`.

    For the one-vs-each GP only.
    """
    model = check_one_vs_each(model)
    n_way, mean = prior.mean.shape[-1], prior.mean.squeeze(-3)
    tilt = fit_variational(model, prior.K, y, n_way, mean=mean, tolerance=1e-2).tilt
    return model.sites_at(tilt[..., None, :, :].expand(*tilt.shape[:-2], n_chains, *tilt.shape[-2:]), y, generators)


def _sites(omega: Tensor, b: Tensor) -> Sites:
    return Sites(omega[..., None, :, :], (b / 2)[..., None, :, :])


def _tilt(model: OneVsEachGP, K: Tensor, y: Tensor, sites: Sites, mean: Tensor) -> Tensor:
    """Root of E[psi^2] under q(f), the Gaussian conditional at the sites; zero at the own class."""
    psi_mean = model.contrast(mean[..., None, :, :], y)
    a, variance = model.solve_with_variance(K, y, sites.omega, residual(sites, psi_mean))
    psi = psi_mean + model.contrast(K[..., None, :, :] @ a, y)
    return (psi**2 + variance).sqrt().squeeze(-3)


def _extrapolate(c0: Tensor, c1: Tensor, c2: Tensor) -> Tensor:
    """SQUAREM (Varadhan & Roland 2008) on the logarithms, from two plain steps c0 -> c1 -> c2; one length per task."""
    there = c1 > 0
    l0, l1, l2 = (torch.where(there, c, 1.0).log() for c in (c0, c1, c2))
    r, v = l1 - l0, (l2 - l1) - (l1 - l0)
    length = torch.linalg.vector_norm(r, dim=(-2, -1), keepdim=True) / torch.linalg.vector_norm(
        v, dim=(-2, -1), keepdim=True
    ).clamp(min=1e-300)
    length = length.clamp(1.0, _LONGEST_STEP)
    return torch.where(there, (l0 + 2 * length * r + length**2 * v).exp(), 0.0)
