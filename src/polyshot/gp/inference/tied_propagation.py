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

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp.arrays import as_array
from polyshot.gp.inference.moment_matching import log_scales, match_moments
from polyshot.gp.inference.propagation import fit_propagation
from polyshot.gp.inference.site_steps import AcceleratedSteps, DampedSteps, TiedSites
from polyshot.gp.models.one_vs_each import OneVsEachGP
from polyshot.gp.models.posterior import Logits, Sites, cholesky, inverse_with_log_det, one_hot
from polyshot.gp.validation import check_positive_count, check_query, check_task, checked_weights

_RESIDUAL, _MOST_OPERATIONS = 10.0, 3e8  # the residual in tolerances; operations per sweep of the general fallback


class TiedPropagation(NamedTuple):
    """The result of expectation propagation with shared precisions.

    Attributes
    ----------
    w : Tensor [N]
        The precision that the sites of each example share.
    kappa : Tensor [N, C]
        Linear coefficients of the sites; zero at the example's own class.
    log_evidence : float
        Approximate log p(Y | X).
    n_sweeps : int
        The number of sweeps.
    converged : bool
        Whether the sweeps converged.
    """

    w: Float[Tensor, "n"]
    kappa: Float[Tensor, "n c"]
    log_evidence: float
    n_sweeps: int
    converged: bool

    @property
    def sites(self) -> Sites:
        """The same as ordinary sites of one chain, for every function that takes those."""
        return Sites(torch.where(self.kappa != 0, self.w[:, None], 0.0)[None], self.kappa[None])


@dataclass(frozen=True)
class TiedConditional:
    """p(f | X, Y, sites) for sites that share their precision.

    Attributes
    ----------
    K, y, w
        Kernel matrix [N, N], labels [N] and shared precisions [N].
    P, S : Tensor [N, N]
        The two systems of the module's formulas.
    a, f : Tensor [N, C]
        The weights of the posterior mean, and the mean f = K a at the support set.
    log_integral : float
        The logarithm of the integral of the sites under the prior.
    """

    K: Float[Tensor, "n n"]
    y: Int[Tensor, "n"]
    w: Float[Tensor, "n"]
    P: Float[Tensor, "n n"]
    S: Float[Tensor, "n n"]
    a: Float[Tensor, "n c"]
    f: Float[Tensor, "n c"]
    log_integral: float

    @staticmethod
    def of(
        K: Float[Tensor, "n n"], y: Int[Tensor, "n"], w: Float[Tensor, "n"], kappa: Float[Tensor, "n c"]
    ) -> "TiedConditional":
        """The posterior given sites with precision w_i and kappa_ic (zero at the own class)."""
        n, n_way = kappa.shape
        Y = one_hot(y, n_way).to(K)
        root = w.sqrt()
        outer = root[:, None] * root
        H = outer * K
        H.diagonal().add_(1.0)
        inverse, log_det_H = inverse_with_log_det(H)
        H_S = inverse / n_way - inverse * (y[:, None] == y)
        H_S.diagonal().add_(1.0)
        inverse_S, log_det_S = inverse_with_log_det(H_S)
        P, S = inverse.mul_(outer), inverse_S.div_(outer)
        b = Y * kappa.sum(-1, keepdim=True) - kappa  # A^T kappa
        shrunk = b / w[:, None]
        own_mean = (Y * (b - P @ shrunk)).sum(-1, keepdim=True)
        a = P @ (shrunk - (Y - 1 / n_way) * (S @ own_mean))
        f = K @ a
        log_det = (n_way - 1) * log_det_H + n * np.log(n_way) + log_det_S
        return TiedConditional(K, y, w, P, S, a, f, float((b * f).sum() - log_det) / 2)

    def contrasts(self) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Mean and variance of psi = f_y - f_c for every example of the support set."""
        n_way = self.a.shape[-1]
        H = self.P / -self.w[:, None]
        H.diagonal().add_(1.0)  # K P
        left = self.K.diagonal() - (H * self.K).sum(-1)
        order, bounds = _by_class(self.y, n_way)
        H, S, y = H[order][:, order], self.S[order][:, order], self.y[order]
        within, coupled = torch.zeros_like(self.f), torch.empty_like(H)
        # S couples an example's own class with every class; class by class, to save memory.
        for c in np.flatnonzero(np.diff(bounds)):
            own_class = slice(bounds[c], bounds[c + 1])
            part = H[:, own_class]
            within[:, c] = ((part @ S[own_class, own_class]) * part).sum(-1)
            torch.mm(part[own_class], S[own_class], out=coupled[own_class])
        across = torch.zeros_like(within).index_add_(1, y, coupled.mul_(H))
        Y = one_hot(self.y, n_way).to(H)
        back = order.argsort()
        within, across = within[back], across[back]
        psi, known = ((Y * x).sum(-1, keepdim=True) for x in (self.f, within))
        variance = 2 * left[:, None] - known - within + 2 * across
        return psi - self.f, torch.where(Y > 0, 0.0, variance)

    def query(self, K_star: Float[Tensor, "q n"], k_star_star: Float[Tensor, "q"]) -> Logits:
        """Mean and full C x C covariance of the query logits, as one chain."""
        n_way = self.a.shape[-1]
        K_star, k_star_star = check_query(self.K, K_star, k_star_star)
        h = K_star @ self.P
        known = (h * K_star).sum(-1)
        sums = _class_sums(self.S, h, self.y, n_way)
        middle = sums.mean(-1)
        level = known / n_way - middle.mean(-1)
        covariance = sums.neg_().add_(middle[:, :, None]).add_(middle[:, None, :] + level[:, None, None])
        covariance.diagonal(dim1=-2, dim2=-1).add_((k_star_star - known)[:, None])
        return Logits((K_star @ self.a)[None], covariance[None])

    def leave_one_out(self, fit: "TiedPropagation", rows: Int[Tensor, "r"]) -> Float[Tensor, "r c"]:
        """Mean logits of the examples in `rows`, each without its own sites; the own class is at zero."""
        logits = self.query(self.K[rows], self.K.diagonal()[rows])
        mean, Sigma, y, w = logits.mean[0], logits.covariance[0], self.y[rows], fit.w[rows]
        each = torch.arange(len(rows), device=rows.device)
        to_own = Sigma[each, y]
        V = Sigma[each, y, y][:, None, None] + Sigma - to_own[:, :, None] - to_own[:, None, :]  # Cov[psi]
        psi = mean[each, y][:, None] - mean
        # the cavity: precision V^-1 - w, precision times mean V^-1 psi - kappa
        L = cholesky(torch.eye(V.shape[-1], dtype=V.dtype, device=V.device) - w[:, None, None] * V)
        without = psi[..., None] - V @ fit.kappa[rows][..., None]
        return -torch.cholesky_solve(without, L).squeeze(-1)


def _by_class(y: Tensor, n_way: int) -> tuple[Tensor, np.ndarray]:
    """An order that brings the examples of a class together, and the bounds [C + 1] of the classes in it."""
    return y.argsort(stable=True), np.r_[0, np.cumsum(as_array(y.bincount(minlength=n_way)))]


def _class_sums(S: Tensor, h: Tensor, y: Tensor, n_way: int) -> Tensor:
    """Y^T diag(h_q) S diag(h_q) Y [Q, C, C] for every query."""
    order, bounds = _by_class(y, n_way)
    S, h, y = S[order][:, order], h[:, order], y[order]
    sums = torch.zeros(len(h), n_way, n_way, dtype=h.dtype, device=h.device)
    for c in np.flatnonzero(np.diff(bounds)):
        own_class = slice(bounds[c], bounds[c + 1])
        sums[:, c].index_add_(1, y, (h[:, own_class] @ S[own_class]).mul_(h))
    return sums


class _Sweep(NamedTuple):
    """What a set of sites gives, and the sites that match the moments of all its cavities.

    An example of weight m counts as m copies, whose sites are the same. w and kappa are those of one copy, and the
    cavity leaves out one copy, or the whole example if m < 1.
    """

    posterior: TiedConditional
    psi: Tensor
    deviation: Tensor
    log_evidence: float
    matched: TiedSites
    improper: Tensor
    left: Tensor
    part: Tensor

    @staticmethod
    def of(K: Tensor, y: Tensor, there: Tensor, weights: Tensor, w: Tensor, kappa: Tensor) -> "_Sweep":
        posterior = TiedConditional.of(K, y, weights * w, weights[:, None] * kappa)
        part = weights.clamp(max=1.0)[:, None]
        removed = part * w[:, None]
        psi, variance = posterior.contrasts()
        variance = variance.clamp(min=1e-12)
        # The cavity: everything but the site itself. Where the shared precision is too large for it, use a wide one.
        precision = 1 / variance
        left = torch.maximum(precision - removed, 1e-3 * precision)
        mean, spread = (psi * precision - part * kappa) / left, 1 / left
        omega, new_kappa, log_z = match_moments(mean, spread, there, tied=True)
        scales = torch.where(there, log_scales(log_z, mean, spread, w[:, None], kappa), 0.0)
        log_evidence = posterior.log_integral + float(weights @ scales.sum(-1))
        improper = (there & (precision - removed < left)).any(-1)
        return _Sweep(posterior, psi, variance.sqrt(), log_evidence, (omega.amax(-1), new_kappa), improper, left, part)

    def residual(self, w: Tensor, kappa: Tensor) -> float:
        """How many standard deviations the full change of a copy's site alone would move its psi, at most."""
        new_w, new_kappa = self.matched
        change = self.part * (new_kappa - kappa - self.psi * (new_w - w)[:, None])
        return float((change / (self.left + self.part * new_w[:, None]) / self.deviation).abs().max())


@torch.no_grad()
def fit_tied_propagation(
    K: Float[Tensor, "n n"],
    y: Int[Tensor, "n"],
    n_way: int,
    *,
    tolerance: float = 1e-3,
    max_sweeps: int = 100,
    start: TiedSites | None = None,
    example_weights: Float[Tensor, "n"] | None = None,
) -> tuple[TiedPropagation, TiedConditional]:
    """Find the posterior by expectation propagation with shared precisions, updating all sites in parallel.

    Sweeps are accelerated first. Where examples are nearly parallel and classes unbalanced, full parallel steps
    overshoot; the acceleration then shortens its steps until nothing moves, far from any solution. So a point counts as
    converged only if a full step would be small too, and if the log evidence has settled, below zero. Otherwise damped
    sweeps start again from the beginning. If they fail as well and the task is not too large, accelerated sweeps start
    from the sites of general expectation propagation. benchmarks/convergence.py counts false convergences.

    Parameters
    ----------
    K, y : Tensor
        Kernel matrix [N, N] and labels [N] of one task.
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
    K, y = check_task(K, y, n_way)
    check_positive_count("max_sweeps", max_sweeps)
    weights = checked_weights(example_weights, y)
    there = ~one_hot(y, n_way)
    prior = (2 * K.diagonal())[:, None].expand(there.shape)
    omega, kappa, _ = match_moments(torch.zeros_like(prior), prior, there, tied=True)
    beginning = omega.amax(-1), kappa
    unit = prior.sqrt().clamp(min=1e-6)
    task = K, y, there, weights
    first = beginning if start is None else (start[0] / weights, start[1] / weights[:, None])
    fit, posterior = _iterate(task, first, AcceleratedSteps(there, unit, weights), tolerance, max_sweeps)
    n_sweeps = fit.n_sweeps
    if not fit.converged:
        fit, posterior = _iterate(task, beginning, DampedSteps(), tolerance, 4 * max_sweeps)
        n_sweeps += fit.n_sweeps
    if not fit.converged and n_way * len(y) ** 3 <= _MOST_OPERATIONS:
        general = fit_propagation(OneVsEachGP(), K, y, n_way).sites  # without the weights, which is good for a start
        sites = general.omega[0].sum(-1) / (n_way - 1), general.kappa[0]
        fit, posterior = _iterate(task, sites, AcceleratedSteps(there, unit, weights), tolerance, max_sweeps)
        n_sweeps += fit.n_sweeps
    w, kappa = weights * fit.w, weights[:, None] * fit.kappa
    return fit._replace(w=w, kappa=kappa, n_sweeps=n_sweeps), posterior


def _iterate(
    task: tuple[Tensor, Tensor, Tensor, Tensor],
    sites: TiedSites,
    steps: AcceleratedSteps | DampedSteps,
    tolerance: float,
    max_sweeps: int,
) -> tuple[TiedPropagation, TiedConditional]:
    """Sweep until a full step is small and the log evidence has settled below zero, or the steps are given up."""
    before, moved, last = torch.zeros_like(sites[1]), np.inf, np.inf  # sites are those of one copy
    for n_sweeps in range(1, max_sweeps + 1):
        sweep = _Sweep.of(*task, *sites)
        previous, moved = moved, float(((sweep.psi - before).abs() / sweep.deviation).max())
        small = tolerance * steps.share
        settled = moved <= small and abs(sweep.log_evidence - last) <= 3 * small and sweep.log_evidence <= 0
        converged = settled and sweep.residual(*sites) <= _RESIDUAL * tolerance
        before, last = sweep.psi, sweep.log_evidence
        following = None if converged else steps.next(sites, sweep.matched, sweep.improper, moved > previous)
        if following is None or n_sweeps == max_sweeps:
            break
        sites = following
    return TiedPropagation(*sites, sweep.log_evidence, n_sweeps, converged), sweep.posterior
