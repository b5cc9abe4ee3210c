"""Expectation propagation for the one-vs-each GP: the deterministic posterior that is nearly exact.

Minka (2001), Rasmussen & Williams (2006), Section 3.6. Each sigmoid is replaced by the Gaussian site that
gives its psi the right mean and variance in the company of all others. The sites are of the same form as
Pólya-Gamma's, so that the posterior, the query logits and their predictive need nothing new, and a sweep over
all sites costs one O(C N^3) conditional. The mean-field variational posterior is as cheap, but far too narrow
for kernel scales above exp(2); benchmarks/gp.py measures both.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.models.one_vs_each import OneVsEachGP
from polyshot.gp.models.posterior import Mean, Sites, full_mean, residual
from polyshot.gp.probabilities import log_expected_sigmoid_slopes
from polyshot.gp.validation import check_positive_count, check_task

_SMALLEST_OMEGA = 1e-10


class Propagation(NamedTuple):
    """The sites (one "chain"), the logarithms of their scales [*batch], and how the sweeps ended."""

    sites: Sites
    log_scale: Float[Tensor, "*batch"]
    n_sweeps: int
    converged: bool


@torch.no_grad()
def fit_propagation(
    model: OneVsEachGP,
    K: Float[Tensor, "*batch n n"],
    y: Int[Tensor, "*batch n"],
    n_way: int,
    *,
    mean: Mean = 0.0,
    tolerance: float = 1e-4,
    max_sweeps: int = 200,
) -> Propagation:
    """Sweep over all sites in parallel until no mean of psi moves by more than `tolerance` standard deviations."""
    K, y = check_task(K, y, n_way)
    check_positive_count("max_sweeps", max_sweeps)
    if model.likelihood.weights is not None:
        raise InputError("expectation propagation is for unit pairwise weights; the variational posterior takes any")
    there = model.comparisons(y, n_way)[..., None, :, :] > 0
    psi_mean = model.contrast(full_mean(mean, (*K.shape[:-1], n_way), K)[..., None, :, :], y)
    # The best Gaussian site without any company, for a psi of the prior's size.
    prior = (2 * K.diagonal(dim1=-2, dim2=-1))[..., None, :, None].expand_as(psi_mean)
    sites, _ = _matched(torch.zeros_like(prior), prior, there)
    before, moved = psi_mean, torch.full(y.shape[:-1], torch.inf, dtype=K.dtype, device=K.device)
    step, active = torch.ones_like(moved), torch.ones_like(moved, dtype=torch.bool)
    for sweep in range(1, max_sweeps + 1):
        a, variance = model.solve_with_variance(K, y, sites.omega, residual(sites, psi_mean))
        psi = psi_mean + model.contrast(K[..., None, :, :] @ a, y)
        previous, moved = moved, ((psi - before).abs() / variance.clamp(min=1e-12).sqrt()).amax((-3, -2, -1))
        before = psi
        # Full parallel steps converge in about seven sweeps; a task that oscillates takes shorter ones.
        step = torch.where(moved > previous, (step / 2).clamp(min=0.1), step)
        # Everything but the site itself. In a bad moment its precision is not positive: then weaken the site.
        precision = 1 / variance.clamp(min=1e-300)
        proper = there & (precision - sites.omega > 1e-9 * precision)
        cavity_variance = 1 / torch.where(proper, precision - sites.omega, 1.0)
        cavity_mean = torch.where(proper, (psi * precision - sites.kappa) * cavity_variance, 0.0)
        new, log_scale = _matched(cavity_mean, cavity_variance, proper)
        new = Sites(*(torch.where(proper, n, s / 2) for n, s in zip(new, sites, strict=True)))
        # A finished task stays as it is while others go on, so that it does not depend on them.
        active = active & (moved > tolerance)
        if not bool(active.any()) or sweep == max_sweeps:
            break
        share = torch.where(active, step, 0.0)[..., None, None, None]
        sites = Sites(*(share * n + (1 - share) * s for n, s in zip(new, sites, strict=True)))
    return Propagation(sites, log_scale, sweep, not bool(active.any()))


def _matched(mean: Tensor, variance: Tensor, there: Tensor) -> tuple[Sites, Tensor]:
    """The site that turns N(mean, variance) into a Gaussian with the moments of sigmoid(psi) N(mean, variance)."""
    log_z, by_mean, by_variance = log_expected_sigmoid_slopes(mean, variance)
    # -d^2 log Z / d mean^2; a Gaussian average obeys the heat equation, d/dv = d^2/dm^2 / 2
    curvature = (by_mean**2 - 2 * by_variance).clamp(min=_SMALLEST_OMEGA)
    shrink = (1 - variance * curvature).clamp(min=1e-4)
    omega, kappa = curvature / shrink, (by_mean + mean * curvature) / shrink
    # log of the site's own integral against the cavity
    log_site = (kappa**2 * variance + 2 * kappa * mean - omega * mean**2) / (2 * (1 + omega * variance)) - torch.log1p(
        omega * variance
    ) / 2
    log_scale = torch.where(there, log_z - log_site, 0.0).sum((-3, -2, -1))
    return Sites(torch.where(there, omega, 0.0), torch.where(there, kappa, 0.0)), log_scale


def log_evidence(
    model: OneVsEachGP, K: Float[Tensor, "*batch n n"], y: Int[Tensor, "*batch n"], q: Propagation, mean: Mean = 0.0
) -> Float[Tensor, "*batch"]:
    """Approximate log p(Y | X), differentiable in K and the mean at fixed sites (whose own slope is zero)."""
    K, y = check_task(K, y, q.sites.omega.shape[-1])
    # log_marginal counts a factor 1/2 for each unit of 2 kappa, which belongs to Pólya-Gamma's sites
    halves = 2 * np.log(2.0) * q.sites.kappa.sum((-3, -2, -1))
    result: Tensor = model.log_marginal(K, y, q.sites, mean).squeeze(-1) + halves + q.log_scale
    return result
