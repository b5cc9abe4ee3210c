"""Expectation propagation in O(N^3) for any number of classes, by sites that share their precision.

An example's C - 1 comparisons are nearly alike, so let them share one precision w_i; their kappa stay free. Then

    A^T Omega A = W (x) (I - 11^T / C)  +  C sum_i w_i u_i u_i^T,     u_i = e_i (x) (e_{y_i} - 1 / C)

(the star of one_vs_each.py with equal weights), and Woodbury's identity leaves two N x N systems for all classes:

    P  = (K + 1/w)^-1,    Gamma_ij = ([y_i = y_j] - 1 / C) P_ij,    S = (W - Gamma)^-1
    G_cc' = ([c = c'] - 1 / C) P + P (Y_c - 1 / C) S (Y_c' - 1 / C) P
    log |I + K A^T Omega A| = (C - 1) log |I + K W| + N log C + log |I - W^-1/2 Gamma W^-1/2|

with Y_c the diagonal of class c's indicator. At C = 2 there is nothing to share and it is expectation propagation
itself. The tests compare the algebra with OneVsEachGP's, the answers with fit_propagation's.
"""

from dataclasses import dataclass
from typing import NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor

from polyshot.gp._anderson import Anderson
from polyshot.gp._small_matrices import OPTIONS
from polyshot.gp._threads import in_threads
from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.checks import check_query, check_task
from polyshot.gp.posterior import Logits, Sites, cholesky, log_determinant, one_hot
from polyshot.gp.predictive import log_expected_sigmoid_slopes

_SMALLEST_OMEGA, _LARGEST_LOG_OMEGA = 1e-10, 3.0


class TiedPropagation(NamedTuple):
    """Precision w [N] and kappa [N, C] of the sites, log p(Y | X), and how the sweeps ended."""

    w: Float[Tensor, "n"]
    kappa: Float[Tensor, "n c"]
    log_evidence: float
    n_sweeps: int
    converged: bool

    @property
    def sites(self) -> Sites:
        """The same as ordinary sites (one "chain"), for everything that takes those."""
        return Sites(torch.where(self.kappa != 0, self.w[:, None], 0.0)[None], self.kappa[None])


@dataclass(frozen=True)
class TiedConditional:
    """p(f | X, Y, sites): P and S [N, N], the weights a [N, C] of the mean, log p(Y | X, sites)."""

    K: Float[Tensor, "n n"]
    y: Int[Tensor, "n"]
    w: Float[Tensor, "n"]
    P: Float[Tensor, "n n"]
    S: Float[Tensor, "n n"]
    a: Float[Tensor, "n c"]
    log_integral: float

    @staticmethod
    def of(
        K: Float[Tensor, "n n"], y: Int[Tensor, "n"], w: Float[Tensor, "n"], kappa: Float[Tensor, "n c"]
    ) -> "TiedConditional":
        """The posterior that sites of precision w_i and kappa_ic (zero at the own class) give."""
        n, n_way = kappa.shape
        Y = one_hot(y, n_way).to(K)
        identity = torch.eye(n, dtype=K.dtype, device=K.device)
        root = w.sqrt()
        outer = root[:, None] * root
        L = cholesky(identity + outer * K)
        inverse = torch.cholesky_inverse(L)
        L_S = cholesky(identity - inverse * (Y @ Y.mT - 1 / n_way))
        P, S = outer * inverse, torch.cholesky_inverse(L_S) / outer
        b = Y * kappa.sum(-1, keepdim=True) - kappa  # A^T kappa
        shrunk = b / w[:, None]
        own_mean = (Y * (b - P @ shrunk)).sum(-1, keepdim=True)
        a = P @ (shrunk - (Y - 1 / n_way) * (S @ own_mean))
        log_det = (n_way - 1) * log_determinant(L) + n * np.log(n_way) + log_determinant(L_S)
        return TiedConditional(K, y, w, P, S, a, float((b * (K @ a)).sum() - log_det) / 2)

    def contrasts(self) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Mean and variance of psi = f_y - f_c for every example of the support set."""
        n, n_way = self.a.shape
        f = self.K @ self.a
        H = torch.eye(n, dtype=f.dtype, device=f.device) - self.P / self.w[:, None]  # K P
        left = self.K.diagonal() - (H * self.K).sum(-1)
        within, across = torch.zeros_like(f), torch.zeros_like(f)
        Y = one_hot(self.y, n_way).to(f)
        for c in range(n_way):  # S couples an example's own class with each: blocks of it, never all
            own_class = self.y == c
            part, S = H[:, own_class], self.S[own_class]
            within[:, c] = ((part @ S[:, own_class]) * part).sum(-1)
            across[own_class] = ((part[own_class] @ S) * H[own_class]) @ Y
        psi, known = ((Y * x).sum(-1, keepdim=True) for x in (f, within))
        variance = 2 * left[:, None] - known - within + 2 * across
        return psi - f, torch.where(Y > 0, 0.0, variance)

    def query(self, K_star: Float[Tensor, "q n"], k_star_star: Float[Tensor, "q"]) -> Logits:
        """Mean and full C x C covariance of the query logits (one "chain")."""
        n_way = self.a.shape[-1]
        K_star, k_star_star = check_query(self.K, K_star, k_star_star)
        h = K_star @ self.P
        known = (h * K_star).sum(-1)[:, None, None]
        identity = torch.eye(n_way, dtype=h.dtype, device=h.device)
        independent = k_star_star[:, None, None] * identity - known * (identity - 1 / n_way)
        covariance = independent - _centred(_class_sums(self.S, h, self.y, n_way))
        return Logits((K_star @ self.a)[None], covariance[None])

    def leave_one_out(self, fit: "TiedPropagation", rows: Int[Tensor, "r"]) -> Float[Tensor, "r c"]:
        """Mean logits, own class at zero, of some examples of a single task, each without its own sites."""
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


def _centred(X: Tensor) -> Tensor:
    """X with the mean of its rows and of its columns taken out."""
    return X - X.mean(-1, keepdim=True) - X.mean(-2, keepdim=True) + X.mean((-2, -1), keepdim=True)


@no_type_check
@njit(**OPTIONS)
def _sum_by_class(S, h, y, first, last, out):
    """out[q, c, c'] = half the sum of h_i S_ij h_j over i in class c and j in c', for the queries first..last-1."""
    N, C = S.shape[0], out.shape[1]
    row = np.empty(C)
    for q in range(first, last):
        out[q] = 0.0
        for i in range(N):
            row[:] = 0.0
            for j in range(i):
                row[y[j]] += S[i, j] * h[q, j]
            row[y[i]] += 0.5 * S[i, i] * h[q, i]
            for c in range(C):
                out[q, y[i], c] += h[q, i] * row[c]
    return -1


def _class_sums(S: Tensor, h: Tensor, y: Tensor, n_way: int) -> Tensor:
    """Y^T diag(h_q) S diag(h_q) Y [Q, C, C] for every query."""
    arrays = [as_array(x) for x in (S, h, y)]
    out = np.empty((len(h), n_way, n_way))
    in_threads(lambda first, last: _sum_by_class(*arrays, first, last, out), len(out), len(S) ** 2)
    half = as_tensor(out).to(S.device)
    return half + half.mT


@torch.no_grad()
def fit_tied_propagation(
    K: Float[Tensor, "n n"],
    y: Int[Tensor, "n"],
    n_way: int,
    *,
    tolerance: float = 1e-3,
    max_sweeps: int = 100,
    start: tuple[Float[Tensor, "n"], Float[Tensor, "n c"]] | None = None,
) -> tuple[TiedPropagation, TiedConditional]:
    """Sweep over all sites in parallel until no mean of psi moves by more than `tolerance` standard deviations.

    `start` is a pair (w, kappa) to begin from.
    """
    K, y = check_task(K, y, n_way)
    there = ~one_hot(y, n_way)
    prior = (2 * K.diagonal())[:, None].expand(there.shape)
    w, kappa = _matched(torch.zeros_like(prior), prior, there)[:2] if start is None else start
    before, unit = torch.zeros_like(prior), prior.sqrt().clamp(min=1e-6)
    history = Anderson()
    for sweep in range(1, max_sweeps + 1):
        posterior = TiedConditional.of(K, y, w, kappa)
        psi, variance = posterior.contrasts()
        variance = variance.clamp(min=1e-12)
        moved = float(((psi - before).abs() / variance.sqrt()).max())
        before = psi
        # Everything but the site itself; where sharing has made its precision too large, a wide cavity stands in.
        precision = 1 / variance
        left = torch.maximum(precision - w[:, None], 1e-3 * precision)
        new_w, new_kappa, log_scale = _matched((psi * precision - kappa) / left, 1 / left, there)
        if moved <= tolerance or sweep == max_sweeps:
            break
        if sweep == 1:
            w, kappa = new_w, new_kappa
            continue
        # Where a site sits, kappa / w, and log w: a line between two such points is one of sensible sites.
        now, image = (
            torch.cat([u.log()[:, None], k / u[:, None] / unit], 1) for u, k in ((w, kappa), (new_w, new_kappa))
        )
        point = history.step(now.flatten(), image.flatten()).reshape(now.shape)
        w = point[:, 0].clamp(np.log(_SMALLEST_OMEGA), _LARGEST_LOG_OMEGA).exp()
        kappa = torch.where(there, point[:, 1:] * unit * w[:, None], 0.0)
    return TiedPropagation(w, kappa, posterior.log_integral + log_scale, sweep, moved <= tolerance), posterior


def _matched(mean: Tensor, variance: Tensor, there: Tensor) -> tuple[Tensor, Tensor, float]:
    """The shared precision that is right on average, and the kappa that gives each psi its mean under the sigmoid."""
    log_z, by_mean, by_variance = log_expected_sigmoid_slopes(mean, variance)
    curvature = (by_mean**2 - 2 * by_variance).clamp(min=_SMALLEST_OMEGA)
    omega = curvature / (1 - variance * curvature).clamp(min=1e-4)
    w = torch.where(there, omega, 0.0).sum(-1) / there.sum(-1)
    kappa = by_mean + w[:, None] * (mean + variance * by_mean)
    log_site = (kappa**2 * variance + 2 * kappa * mean - w[:, None] * mean**2) / (
        2 * (1 + w[:, None] * variance)
    ) - torch.log1p(w[:, None] * variance) / 2
    return w, torch.where(there, kappa, 0.0), float(torch.where(there, log_z - log_site, 0.0).sum())
