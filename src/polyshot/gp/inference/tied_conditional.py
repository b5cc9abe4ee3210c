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
from polyshot.gp.compiled.tied_systems import (
    contrast_variances,
    first_system,
    posterior_means,
    scaled_back,
    second_system,
)
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
    log_det : float
        log |I + K A^T Omega A|.
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
    log_det: float
    a: Float[Tensor, "n c"]
    f: Float[Tensor, "n c"]
    log_integral: float

    @staticmethod
    def of(
        K: Float[Tensor, "n n"],
        y: Int[Tensor, "n"],
        w: Float[Tensor, "n"],
        kappa: Float[Tensor, "n c"],
        spare: "TiedConditional | None" = None,
    ) -> "TiedConditional":
        """The posterior given sites with precision w_i and kappa_ic (zero at the own class).

        The matrices of `spare` are overwritten.
        """
        n, n_way = kappa.shape
        covariance, labels, root = as_array(K), as_array(y), np.sqrt(as_array(w))
        P, S = (np.empty((n, n)), np.empty((n, n))) if spare is None else (as_array(spare.P), as_array(spare.S))
        first_system(covariance, root, P)
        log_det_first = _invert(P)
        second_system(P, labels, n_way, S)
        log_det_second = _invert(S)
        scaled_back(P, S, root)
        log_det = float((n_way - 1) * log_det_first + n * np.log(n_way) + log_det_second)
        systems = torch.from_numpy(P).to(K.device), torch.from_numpy(S).to(K.device)
        nothing = torch.zeros_like(kappa)
        return TiedConditional(K, y, w, *systems, log_det, nothing, nothing, 0.0).with_kappa(kappa)

    def with_kappa(self, kappa: Float[Tensor, "n c"]) -> "TiedConditional":
        """The posterior for another kappa, in O(N^2 C), because the systems depend on the precisions alone."""
        arrays = [as_array(x) for x in (self.K, self.P, self.S, self.y, self.w, kappa)]
        a, f = np.empty(kappa.shape), np.empty(kappa.shape)
        product = posterior_means(*arrays, a, f)
        means = torch.from_numpy(a).to(self.K.device), torch.from_numpy(f).to(self.K.device)
        return TiedConditional(
            self.K, self.y, self.w, self.P, self.S, self.log_det, *means, float(product - self.log_det) / 2
        )

    def psi(self) -> Float[Tensor, "n c"]:
        """The mean of psi = f_y - f_c for every example of the support set."""
        return self.f.gather(1, self.y[:, None]) - self.f

    def contrasts(self) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Mean and variance of psi for every example of the support set."""
        variance = np.empty(self.f.shape)
        contrast_variances(*(as_array(x) for x in (self.K, self.P, self.S, self.y, self.w)), variance)
        return self.psi(), torch.from_numpy(variance).to(self.f.device)

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


def _invert(H: NDArray[np.float64]) -> float:
    """Replace the lower half of a positive definite matrix by that of its inverse; return its log-determinant."""
    L, not_definite = dpotrf(H.T, lower=0, clean=0, overwrite_a=1)  # scipy's LAPACK is faster than numpy's
    if not_definite:
        raise InputError(NOT_DEFINITE)
    log_det = 2 * float(np.log(L.diagonal()).sum())
    dpotri(L, lower=0, overwrite_c=1)
    return log_det


def _class_sums(S: Tensor, h: Tensor, y: Tensor, n_way: int) -> Tensor:
    """Y^T diag(h_q) S diag(h_q) Y [Q, C, C] for every query."""
    order = as_array(y).argsort(kind="stable")
    there, starts = np.unique(as_array(y)[order], return_index=True)
    each, coupling = as_array(h)[:, order], as_array(S)[np.ix_(order, order)]
    sums = np.zeros((len(each), n_way, n_way))
    for c, first, end in zip(there, starts, [*starts[1:], len(order)], strict=True):
        product = each[:, first:end] @ coupling[first:end]
        product *= each
        sums[:, c, there] = np.add.reduceat(product, starts, axis=1)
    return torch.from_numpy(sums).to(h.device)
