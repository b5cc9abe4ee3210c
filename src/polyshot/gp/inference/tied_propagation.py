"""Expectation propagation in O(N^3) for any number of classes, by sites that share their precision.

The C - 1 comparisons of an example are nearly alike, so let them share one precision w_i; their kappa stay free. Then

    A^T Omega A = W (x) (I - 11^T / C)  +  C sum_i w_i u_i u_i^T,     u_i = e_i (x) (e_{y_i} - 1 / C)

(the star of one_vs_each.py with equal weights), and Woodbury's identity leaves two N x N systems for all classes:

    P  = (K + 1/w)^-1,    Gamma_ij = ([y_i = y_j] - 1 / C) P_ij,    S = (W - Gamma)^-1
    G_cc' = ([c = c'] - 1 / C) P + P (Y_c - 1 / C) S (Y_c' - 1 / C) P
    log |I + K A^T Omega A| = (C - 1) log |I + K W| + N log C + log |I - W^-1/2 Gamma W^-1/2|

with Y_c the diagonal matrix of class c's indicator. At C = 2 there is nothing to share, and it is ordinary expectation
propagation. The tests compare the algebra with that of OneVsEachGP and the answers with those of fit_propagation.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.inference.feature_propagation import FactoredKernel
from polyshot.gp.inference.moment_matching import TiedMatch, match_tied
from polyshot.gp.inference.nested_sweeps import nested_sweeps, sites_to_start_from
from polyshot.gp.inference.propagation import fit_propagation
from polyshot.gp.inference.site_steps import AcceleratedSteps, DampedSteps, TiedSites
from polyshot.gp.inference.tied_posterior import KernelMatrix, TiedPosterior, TiedPropagation, tied_conditional
from polyshot.gp.models.one_vs_each import OneVsEachGP
from polyshot.gp.models.posterior import one_hot
from polyshot.gp.validation import (
    NOT_DEFINITE,
    check_finite_tensor,
    check_labels,
    check_positive_count,
    check_task,
    checked_weights,
)

_RESIDUAL, _MOST_OPERATIONS = 0.3, 3e8  # the residual in tolerances; operations per sweep of the general fallback
_FEW = 300  # examples; up to these a factorisation costs no more than what nested sweeps need beside it


class _Sweep(NamedTuple):
    """What a set of sites gives, and the sites that match the moments of all its cavities.

    An example of weight m counts as m copies, whose sites are the same. w and kappa are those of one copy.
    """

    posterior: TiedPosterior
    psi: Tensor
    deviation: Tensor
    log_evidence: float
    matched: TiedMatch

    @staticmethod
    def of(K: KernelMatrix, y: Tensor, weights: Tensor, w: Tensor, kappa: Tensor) -> "_Sweep":
        posterior = tied_conditional(K, y, weights * w, weights[:, None] * kappa)
        psi, variance = posterior.contrasts()
        variance = variance.clamp(min=1e-12)
        matched = match_tied(psi, variance, y, w, kappa, weights)
        return _Sweep(posterior, psi, variance.sqrt_(), posterior.log_integral + matched.log_scale, matched)


@torch.no_grad()
def fit_tied_propagation(
    K: KernelMatrix,
    y: Int[Tensor, "n"],
    n_way: int,
    *,
    tolerance: float = 1e-3,
    max_sweeps: int = 100,
    start: TiedSites | None = None,
    example_weights: Float[Tensor, "n"] | None = None,
) -> tuple[TiedPropagation, TiedPosterior]:
    """Find the posterior by expectation propagation with shared precisions, updating all sites in parallel.

    Sweeps are accelerated first; more than 300 examples take nested ones (nested_sweeps.py). Where examples are nearly
    parallel and classes unbalanced, full parallel steps overshoot; the acceleration then shortens its steps until
    nothing moves, far from any solution. So a point counts as converged only if a full step would be small too, and if
    the log evidence has settled, below zero. Otherwise damped sweeps start again from the beginning. If they fail as
    well and the task is not too large, accelerated sweeps start from the sites of general expectation propagation.
    benchmarks/convergence.py counts false convergences.

    Parameters
    ----------
    K : Tensor or FactoredKernel
        Kernel matrix [N, N], or the features whose inner products it has.
    y : Tensor
        Labels [N].
    n_way : int
        The number of classes.
    tolerance : float
        Stop when a full step moves no mean of psi by more than this many standard deviations, and the log evidence by
        no more than three times this.
    max_sweeps : int
        The largest number of accelerated sweeps per attempt. There may be four times as many damped ones.
    start : tuple, optional
        Sites (w, kappa) to start from.
    example_weights : Tensor [N], optional
        Powers of the examples' likelihoods, above zero. A weight of two gives the result of the example twice. Weights
        below one are approximate in a further way: the site is the power of that of the whole example.
    """
    if isinstance(K, FactoredKernel):
        check_finite_tensor("the features", K.phi)
        y = check_labels("labels", y, n_way)
    else:
        K, y = check_task(K, y, n_way)
    check_positive_count("max_sweeps", max_sweeps)
    weights = checked_weights(example_weights, y)
    there = ~one_hot(y, n_way)
    prior = (2 * K.diagonal())[:, None].expand(there.shape)
    nothing = torch.zeros_like(prior)
    alone = match_tied(nothing, prior, y, nothing[:, 0], nothing, weights)
    beginning = alone.w, alone.kappa
    unit = prior.sqrt().clamp(min=1e-6)
    task = K, y, weights
    first = beginning if start is None else (start[0] / weights, start[1] / weights[:, None])
    if len(y) <= _FEW:
        fit, posterior = _iterate(task, first, AcceleratedSteps(there, unit, weights), tolerance, max_sweeps)
    else:
        first = first if start else sites_to_start_from(prior, y)
        fit, posterior = nested_sweeps(*task, first, tolerance, max_sweeps)
    n_sweeps = fit.n_sweeps
    if not fit.converged:
        fit, posterior = _iterate(task, beginning, DampedSteps(), tolerance, 4 * max_sweeps)
        n_sweeps += fit.n_sweeps
    if not fit.converged and n_way * len(y) ** 3 <= _MOST_OPERATIONS:
        matrix = K.matrix() if isinstance(K, FactoredKernel) else K
        general = fit_propagation(OneVsEachGP(), matrix, y, n_way).sites  # without the weights, good for a start
        sites = general.omega[0].sum(-1) / (n_way - 1), general.kappa[0]
        fit, posterior = _iterate(task, sites, AcceleratedSteps(there, unit, weights), tolerance, max_sweeps)
        n_sweeps += fit.n_sweeps
    if not np.isfinite(fit.log_evidence):
        raise InputError(NOT_DEFINITE)
    w, kappa = weights * fit.w, weights[:, None] * fit.kappa
    return fit._replace(w=w, kappa=kappa, n_sweeps=n_sweeps), posterior


def _iterate(
    task: tuple[KernelMatrix, Tensor, Tensor],
    sites: TiedSites,
    steps: AcceleratedSteps | DampedSteps,
    tolerance: float,
    max_sweeps: int,
) -> tuple[TiedPropagation, TiedPosterior]:
    """Sweep until a full step is small and the log evidence has settled below zero, or the steps are given up."""
    before, moved, last = torch.zeros_like(sites[1]), np.inf, np.inf  # sites are those of one copy
    for n_sweeps in range(1, max_sweeps + 1):
        sweep = _Sweep.of(*task, *sites)
        previous, moved = moved, float(((sweep.psi - before).abs() / sweep.deviation).max())
        small = tolerance * steps.share
        settled = moved <= small and abs(sweep.log_evidence - last) <= 3 * small and sweep.log_evidence <= 0
        converged = settled and sweep.matched.residual <= _RESIDUAL * tolerance
        before, last = sweep.psi, sweep.log_evidence
        following = steps.next(sites, sweep.matched, moved > previous) if np.isfinite(moved) and not converged else None
        if following is None or n_sweeps == max_sweeps:
            break
        sites = following
    return TiedPropagation(*sites, sweep.log_evidence, n_sweeps, converged), sweep.posterior
