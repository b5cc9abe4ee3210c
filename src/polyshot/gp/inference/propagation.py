"""Expectation propagation for the one-vs-each GP: a deterministic posterior that is nearly exact.

Minka (2001), Rasmussen & Williams (2006), Section 3.6. Each sigmoid is replaced by the Gaussian site that gives its psi
the right mean and variance in the presence of all the others. The sites have the same form as Pólya-Gamma's, so the
posterior, the query logits and the predictive rules need nothing new, and one sweep over all sites costs one O(C N^3)
conditional. The mean-field variational posterior is as cheap, but far too narrow for kernel scales above exp(2);
benchmarks/gp.py measures both.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.inference.gibbs import Prior, draw_latent
from polyshot.gp.inference.moment_matching import log_scales, match_moments
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.one_vs_each import OneVsEachGP, check_one_vs_each
from polyshot.gp.models.posterior import Sites, full_mean, residual
from polyshot.gp.shapes import Generators, KernelMatrix, Labels, Mean, PerTask
from polyshot.gp.validation import check_positive_count, check_task

_RESIDUAL = 10.0  # tolerances


class Propagation(NamedTuple):
    """The result of expectation propagation.

    Attributes
    ----------
    sites : Sites
        The sites, as one chain.
    log_scale : Tensor [*batch]
        The logarithm of the product of the sites' scales.
    n_sweeps : int
        The number of sweeps.
    converged : bool
        Whether the sweeps converged for every task.
    """

    sites: Sites
    log_scale: PerTask
    n_sweeps: int
    converged: bool


@torch.no_grad()
def fit_propagation(
    model: OneVsEachGP,
    K: KernelMatrix,
    y: Labels,
    n_way: int,
    *,
    mean: Mean = 0.0,
    tolerance: float = 1e-4,
    max_sweeps: int = 200,
) -> Propagation:
    """Find the posterior by expectation propagation, updating all sites in parallel.

    Parameters
    ----------
    model : OneVsEachGP
        The classifier, with unit weights.
    K, y : Tensor
        Kernel matrix [*batch, N, N] and labels [*batch, N] of the support set.
    n_way : int
        The number of classes.
    mean : float or Tensor
        Prior mean.
    tolerance : float
        Stop when a full step moves no mean of psi by more than this many standard deviations, and no precision by more
        than ten times this share of that of psi.
    max_sweeps : int
        The largest number of sweeps.
    """
    K, y = check_task(K, y, n_way)
    check_positive_count("max_sweeps", max_sweeps)
    if model.weighted:
        raise InputError("expectation propagation needs unit weights; use fit_variational, which takes any")
    there = model.comparisons(y, n_way)[..., None, :, :] > 0
    psi_mean = model.contrast(full_mean(mean, (*K.shape[:-1], n_way), K)[..., None, :, :], y)
    # Start from the best Gaussian site for a psi with the prior's variance and no other sites.
    prior = (2 * K.diagonal(dim1=-2, dim2=-1))[..., None, :, None].expand_as(psi_mean)
    sites = Sites(*match_moments(torch.zeros_like(prior), prior, there)[:2])
    before, moved = psi_mean, torch.full(y.shape[:-1], torch.inf, dtype=K.dtype, device=K.device)
    step, active = torch.ones_like(moved), torch.ones_like(moved, dtype=torch.bool)
    for sweep in range(1, max_sweeps + 1):
        a, variance = model.solve_with_variance(K, y, sites.omega, residual(sites, psi_mean))
        psi = psi_mean + model.contrast(K[..., None, :, :] @ a, y)
        previous, moved = moved, ((psi - before).abs() / variance.clamp(min=1e-12).sqrt()).amax((-3, -2, -1))
        before = psi
        # Full parallel steps converge in about seven sweeps; a task that oscillates takes shorter ones.
        taken, step = step, torch.where(moved > previous, (step / 2).clamp(min=0.1), step)
        # The cavity: everything but the site itself. While its precision is not positive, weaken the site instead.
        precision = 1 / variance.clamp(min=1e-300)
        proper = there & (precision - sites.omega > 1e-9 * precision)
        cavity_variance = 1 / torch.where(proper, precision - sites.omega, 1.0)
        cavity_mean = torch.where(proper, (psi * precision - sites.kappa) * cavity_variance, 0.0)
        *new, log_z = match_moments(cavity_mean, cavity_variance, proper)
        log_scale = torch.where(proper, log_scales(log_z, cavity_mean, cavity_variance, *sites), 0.0)
        new = [torch.where(proper, n, s / 2) for n, s in zip(new, sites, strict=True)]
        # A finished task stays as it is while others continue, so that it does not depend on them. After a shortened
        # step, a full one would have to be within the tolerance. Where examples repeat each other, the means stand
        # still long before the precisions do.
        unmatched = torch.where(proper, (new[0] - sites.omega).abs() * variance, 0.0).amax((-3, -2, -1))
        active = active & ((moved > tolerance * taken) | (unmatched > _RESIDUAL * tolerance))
        if not bool(active.any()) or sweep == max_sweeps:
            break
        share = torch.where(active, step, 0.0)[..., None, None, None]
        sites = Sites(*(share * n + (1 - share) * s for n, s in zip(new, sites, strict=True)))
    return Propagation(sites, log_scale.sum((-3, -2, -1)), sweep, not bool(active.any()))


def log_evidence(model: OneVsEachGP, K: KernelMatrix, y: Labels, q: Propagation, mean: Mean = 0.0) -> PerTask:
    """Approximate log p(Y | X), differentiable in K and the mean.

    The sites are held fixed: at convergence the derivative with respect to them is zero.

    Parameters
    ----------
    model, K, y, mean
        As in `fit_propagation`.
    q : Propagation
        Its result.
    """
    K, y = check_task(K, y, q.sites.omega.shape[-1])
    # log_marginal includes a factor 1/2 per unit of 2 kappa, which belongs to Pólya-Gamma's sites only
    halves = 2 * np.log(2.0) * q.sites.kappa.sum((-3, -2, -1))
    result: Tensor = model.log_marginal(K, y, q.sites, mean).squeeze(-1) + halves + q.log_scale
    return result


def propagation_start(model: GPModel, prior: Prior, y: Labels, n_chains: int, generators: Generators) -> Sites:
    """Start Gibbs chains at draws from expectation propagation's posterior: `gibbs(..., start=propagation_start)`.

    It is so close to the exact posterior that no burn-in is needed. For the one-vs-each GP only.
    """
    model = check_one_vs_each(model)
    n_way, mean = prior.mean.shape[-1], prior.mean.squeeze(-3)
    fitted = fit_propagation(model, prior.K, y, n_way, mean=mean, tolerance=1e-2).sites
    sites = Sites(*(x.expand(*x.shape[:-3], n_chains, *x.shape[-2:]) for x in fitted))
    return model.draw_sites(draw_latent(model, prior, y, sites, generators), y, generators)
