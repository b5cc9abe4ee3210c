"""The posterior that sites with a shared precision per example give, by the kernel matrix; see tied_propagation.py."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.arrays import as_array
from polyshot.gp.models.posterior import Logits, cholesky
from polyshot.gp.validation import NOT_DEFINITE, check_query


class LeaveOneOut:
    """What every posterior of tied sites can say about its own examples."""

    y: Int[Tensor, "n"]

    def of_rows(self, rows: Int[Tensor, "r"]) -> Logits:
        """Mean and full C x C covariance of the logits of some examples, as one chain."""
        raise NotImplementedError

    def leave_one_out(
        self, w: Float[Tensor, "n"], kappa: Float[Tensor, "n c"], rows: Int[Tensor, "r"]
    ) -> Float[Tensor, "r c"]:
        """Mean logits of the examples in `rows`, each without its own sites; the own class is at zero."""
        logits = self.of_rows(rows)
        mean, Sigma, y = logits.mean[0], logits.covariance[0], self.y[rows]
        each = torch.arange(len(rows), device=rows.device)
        to_own = Sigma[each, y]
        V = Sigma[each, y, y][:, None, None] + Sigma - to_own[:, :, None] - to_own[:, None, :]  # Cov[psi]
        psi = mean[each, y][:, None] - mean
        # the cavity: precision V^-1 - w, precision times mean V^-1 psi - kappa
        L = cholesky(torch.eye(V.shape[-1], dtype=V.dtype, device=V.device) - w[rows][:, None, None] * V)
        without = psi[..., None] - V @ kappa[rows][..., None]
        return -torch.cholesky_solve(without, L).squeeze(-1)


@dataclass(frozen=True)
class TiedConditional(LeaveOneOut):
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
        covariance, precision, coefficients, labels = (as_array(x) for x in (K, w, kappa, y))
        own = labels[:, None] == np.arange(n_way)
        root = np.sqrt(precision)
        outer = root[:, None] * root
        H = outer * covariance
        H.flat[:: n + 1] += 1.0
        inverse, log_det_H = _inverse(H)
        H_S = inverse / n_way - inverse * (labels[:, None] == labels)
        H_S.flat[:: n + 1] += 1.0
        S, log_det_S = _inverse(H_S)
        P = np.multiply(inverse, outer, out=inverse)
        S /= outer
        b = own * coefficients.sum(-1, keepdims=True) - coefficients  # A^T kappa
        shrunk = b / precision[:, None]
        own_mean = (own * (b - P @ shrunk)).sum(-1, keepdims=True)
        a = P @ (shrunk - (own - 1 / n_way) * (S @ own_mean))
        f = covariance @ a
        log_det = (n_way - 1) * log_det_H + n * np.log(n_way) + log_det_S
        matrices = torch.from_numpy(P).to(K.device), torch.from_numpy(S).to(K.device)
        means = torch.from_numpy(a).to(K.device), torch.from_numpy(f).to(K.device)
        return TiedConditional(K, y, w, *matrices, *means, float((b * f).sum() - log_det) / 2)

    def contrasts(self) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Mean and variance of psi = f_y - f_c for every example of the support set."""
        K, P, S, w, f, y = (as_array(x) for x in (self.K, self.P, self.S, self.w, self.f, self.y))
        n, n_way = f.shape
        H = P / -w[:, None]
        H.flat[:: n + 1] += 1.0  # K P
        left = K.diagonal() - np.einsum("ij,ij->i", H, K)
        order = y.argsort(kind="stable")
        H, S, y = H[np.ix_(order, order)], S[np.ix_(order, order)], y[order]
        within, across, coupled = np.zeros((n, n_way)), np.zeros((n, n_way)), np.empty_like(H)
        bounds = np.searchsorted(y, np.arange(n_way + 1))
        classes = [(c, slice(bounds[c], bounds[c + 1])) for c in np.flatnonzero(np.diff(bounds))]
        # S couples an example's own class with every class; class by class, to save memory.
        for c, members in classes:
            part = H[:, members]
            within[:, c] = np.einsum("ij,ij->i", part @ S[members, members], part)
            np.matmul(part[members], S[members], out=coupled[members])
        coupled *= H
        for c, members in classes:
            across[:, c] = coupled[:, members].sum(1)
        back = order.argsort()
        within, across, y = within[back], across[back], y[back]
        each = np.arange(n)
        variance = (2 * left - within[each, y])[:, None] - within + 2 * across
        variance[each, y] = 0.0
        psi = f[each, y][:, None] - f
        return torch.from_numpy(psi).to(self.f.device), torch.from_numpy(variance).to(self.f.device)

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

    def of_rows(self, rows: Int[Tensor, "r"]) -> Logits:
        """The logits of some examples."""
        return self.query(self.K[rows], self.K.diagonal()[rows])


def _inverse(H: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Inverse and log-determinant of a positive definite matrix, by scipy's faster LAPACK; overwrites H."""
    L, not_definite = dpotrf(H.T, lower=1, clean=0, overwrite_a=1)
    if not_definite:
        raise InputError(NOT_DEFINITE)
    log_det = 2 * float(np.log(L.diagonal()).sum())
    upper = dpotri(L, lower=1, overwrite_c=1)[0].T
    inverse: NDArray[np.float64] = np.triu(upper)
    inverse += np.triu(upper, 1).T
    return inverse, log_det


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
