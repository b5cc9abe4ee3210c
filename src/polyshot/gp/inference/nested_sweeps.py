"""Tied expectation propagation for many examples: as few factorisations as possible.

A sweep of tied_propagation.py updates the precisions w and kappa together, and has to factorise two matrices each time.
These matrices depend on w alone. So this keeps w fixed until kappa matches all means, in O(N^2 C) a step (or O(N C D)
by features), and updates w only then. Both loops are accelerated. The solution is the same, because all moments match
where neither w nor kappa changes any more. It takes about five sweeps instead of a dozen.

When w changes, kappa changes by psi times that, which leaves the mean of psi where it was.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from polyshot.gp.inference.anderson import Anderson
from polyshot.gp.inference.moment_matching import TiedMatch, match_tied
from polyshot.gp.inference.site_steps import LARGEST_LOG_OMEGA, LOG_SMALLEST_OMEGA, TiedSites
from polyshot.gp.inference.tied_posterior import KernelMatrix, TiedPosterior, TiedPropagation, tied_conditional

_INNER_STEPS, _INNER_DEPTH = 10, 3
_ENOUGH = 0.1  # of the first move of psi: for a w that will change, kappa need not be exact
_EXACT = 0.05  # tolerances; what psi may be off by without a trace in the log evidence
_SETTLED = 1e-3  # tolerances per example, of a hundred or more, that the log evidence may still lack
_W_TOLERANCE = 10.0  # log w may be off by so many tolerances
_SHORTEST = 0.05
_MODERATE = 4.0


class _Means(NamedTuple):
    """The kappa for given w, the posterior with both, the last move of psi in deviations, and the next sites."""

    kappa: Tensor
    posterior: TiedPosterior
    psi: Tensor
    moved: float
    matched: TiedMatch


def nested_sweeps(
    K: KernelMatrix, y: Tensor, weights: Tensor, sites: TiedSites, tolerance: float, max_sweeps: int
) -> tuple[TiedPropagation, TiedPosterior]:
    """Sweep until kappa match all means for a w that would change no further."""
    (w, kappa), root, outer, posterior = sites, weights.sqrt(), Anderson(), None
    last, last_change = float("inf"), float("inf")
    negligible = _SETTLED * tolerance * max(len(y), 100)
    for n_sweeps in range(1, max_sweeps + 1):
        posterior = tied_conditional(K, y, weights * w, weights[:, None] * kappa, spare=posterior)
        means = _match_means(posterior, y, weights, w, kappa, tolerance)
        kappa, new_w = means.kappa, means.matched.w
        log_evidence = means.posterior.log_integral + means.matched.log_scale
        change = float((new_w.log() - w.log()).abs().max())
        # What the log evidence still lacks shrinks with the change of w.
        settled = abs(log_evidence - last) * min(1.0, change / last_change) <= negligible and log_evidence <= 0
        converged = settled and means.moved <= tolerance and change <= _W_TOLERANCE * tolerance
        last, last_change = log_evidence, change
        if converged or n_sweeps == max_sweeps or not math.isfinite(log_evidence):
            break
        log_w = outer.step(root * w.log(), root * new_w.log()) / root
        if outer.share < _SHORTEST:
            break
        new_w = log_w.clamp(LOG_SMALLEST_OMEGA, LARGEST_LOG_OMEGA).exp()
        kappa = (kappa + (new_w - w)[:, None] * means.psi).scatter_(1, y[:, None], 0.0)
        w = new_w
    return TiedPropagation(w, kappa, log_evidence, n_sweeps, converged), means.posterior


def _match_means(
    posterior: TiedPosterior, y: Tensor, weights: Tensor, w: Tensor, kappa: Tensor, tolerance: float
) -> _Means:
    """Find the kappa that match all means while w, and so all variances, stay."""
    psi, variance = posterior.contrasts()
    variance.clamp_(min=1e-12)
    deviation = variance.sqrt()
    scale = weights.sqrt()[:, None] * deviation  # what a change of kappa would move psi by, in deviations
    inner, moved, enough = Anderson(_INNER_DEPTH), float("inf"), 0.0
    for step in range(_INNER_STEPS):
        image = match_tied(psi, variance, y, w, kappa, weights, keep_w=True).kappa
        kappa = (inner.step((scale * kappa).flatten(), (scale * image).flatten()).reshape(kappa.shape)) / scale
        posterior, before = posterior.with_kappa(weights[:, None] * kappa), psi
        psi = posterior.psi()
        moved = float(((psi - before).abs_() / deviation).max())
        enough = max(_EXACT * tolerance, _ENOUGH * moved) if step == 0 else enough
        if moved <= enough:
            break
    return _Means(kappa, posterior, psi, moved, match_tied(psi, variance, y, w, kappa, weights))


def sites_to_start_from(prior: Tensor, y: Tensor) -> TiedSites:
    """Sites for a psi of moderate variance, which many examples leave, whatever the variance of the prior."""
    nothing = torch.zeros_like(prior)
    one = torch.ones_like(prior[:, 0])
    matched = match_tied(nothing, prior.clamp(max=_MODERATE), y, nothing[:, 0], nothing, one)
    return matched.w, matched.kappa
