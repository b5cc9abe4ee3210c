"""The tied posterior in feature space: no N x N matrix, for many examples and few features.

For K = Phi Phi^T the logits are f_c = Phi w_c with w_c ~ N(0, I) [D]. With sites that share a precision w_i per
example (tied_propagation.py), A_c = Phi_c^T W_c Phi_c of class c's rows and A = sum_c A_c, the precision of all C
weight vectors has the D x D blocks [c = c'] (I + A + C A_c) - A_c - A_c'. Let E be the stack of C identities and

    T_c = (I + A + C A_c)^-1,    R = (sum_c T_c)^-1

Then the precision is P T^-1 P + E E^T / C, where P = I - E E^T / C takes away what all classes share. Hence

    Cov[w_c, w_c'] = I / C + [c = c'] T_c - T_c R T_c'
    log |precision| = -sum_c log |T_c| + log |sum_c T_c| - D log C
    Var[f_y - f_c] = phi^T (T_y + T_c - (T_y - T_c) R (T_y - T_c)) phi

and with b = A^T kappa, whose rows sum to zero, E[w_c] = T_c (beta_c - R sum_k T_k beta_k), beta_c = Phi^T b_c. A sweep
costs O(N D^2 + C D^3). The variances of all N C differences cost O(N C D^2) more; their sum over the classes,

    phi^T (C T_y + sum_c T_c - C T_y R T_y - sum_c T_c R T_c) phi,

costs O(N D^2), and its mean can stand for each of them. The tests compare all of it with TiedConditional.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp.models.posterior import Logits, cholesky, one_hot

_NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True)
class FeatureConditional:
    """p(f | X, Y, sites) of tied sites, by the weights of the features.

    Parameters
    ----------
    phi : Tensor [N, D]
        Features of the support set, with K = phi phi^T.
    y : Tensor [N]
        Labels.
    T : Tensor [C, D, D]
        (I + A + C A_c)^-1 of every class.
    R : Tensor [D, D]
        Inverse of the sum of T.
    weights : Tensor [D, C]
        Posterior mean of the weights.
    log_integral : float
        log of the sites' integral against the prior, up to the scales of the sites.
    each_pair : bool
        Whether `contrasts` gives every difference its own variance, or an example's differences their mean.
    """

    phi: Float[Tensor, "n d"]
    y: Int[Tensor, "n"]
    T: Float[Tensor, "c d d"]
    R: Float[Tensor, "d d"]
    weights: Float[Tensor, "d c"]
    log_integral: float
    each_pair: bool

    @staticmethod
    def of(
        phi: Float[Tensor, "n d"],
        y: Int[Tensor, "n"],
        w: Float[Tensor, "n"],
        kappa: Float[Tensor, "n c"],
        each_pair: bool = True,
    ) -> "FeatureConditional":
        """The posterior that sites of precision w_i and kappa_ic (zero at the own class) give."""
        d, n_way = phi.shape[1], kappa.shape[1]
        by_class = _class_products(phi, y, w, n_way)
        precision = n_way * by_class + by_class.sum(0)
        precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
        L = cholesky(precision)
        T = torch.cholesky_inverse(L)
        total = T.sum(0)
        L_total = cholesky(total)
        R = torch.cholesky_inverse(L_total)
        Y = one_hot(y, n_way).to(phi)
        b = Y * kappa.sum(-1, keepdim=True) - kappa
        beta = phi.mT @ b
        own = (T @ beta.mT[..., None]).squeeze(-1)  # T_c beta_c, [C, D]
        weights = own.mT - (T @ (R @ own.sum(0))).mT
        log_det = 2 * float(L.diagonal(dim1=-2, dim2=-1).log().sum() + L_total.diagonal().log().sum())
        log_det -= d * np.log(n_way)
        return FeatureConditional(phi, y, T, R, weights, float((beta * weights).sum() - log_det) / 2, each_pair)

    def contrasts(self) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Mean and variance of psi = f_y - f_c for every example of the support set."""
        f, n_way = self.phi @ self.weights, self.weights.shape[1]
        Y = one_hot(self.y, n_way)
        psi = f.gather(1, self.y[:, None]) - f
        variance = self._each_variance() if self.each_pair else self._mean_variance()[:, None].expand_as(psi)
        return psi, torch.where(Y, 0.0, variance)

    def query(self, phi_star: Float[Tensor, "q d"]) -> Logits:
        """Mean and full C x C covariance of the query logits (one "chain")."""
        n_way = len(self.T)
        products = phi_star @ self.T  # T_c phi of every query, [C, Q, D]
        inner = (products * phi_star).sum(-1).mT
        covariance = torch.einsum("cqd,kqd->qck", products @ self.R, products).neg_()
        covariance.add_((phi_star.square().sum(-1) / n_way)[:, None, None])
        covariance.diagonal(dim1=-2, dim2=-1).add_(inner)
        return Logits((phi_star @ self.weights)[None], covariance[None])

    def _mean_variance(self) -> Tensor:
        """The mean over the other classes of Var[f_y - f_c], by the sum that costs no more than one class's."""
        n_way = len(self.T)
        TR = self.T @ self.R
        own = n_way * (self.T - TR @ self.T)
        all_classes = self.T.sum(0) - (TR @ self.T).sum(0)
        total = torch.empty(len(self.phi), dtype=self.phi.dtype, device=self.phi.device)
        for c in range(n_way):
            rows = torch.nonzero(self.y == c).flatten()
            part = self.phi[rows]
            total[rows] = ((part @ (own[c] + all_classes)) * part).sum(-1)
        return total / (n_way - 1)

    def _each_variance(self) -> Tensor:
        """Var[f_y - f_c] for every example and class, in pieces that bound the memory."""
        n_way, d = len(self.T), self.phi.shape[1]
        variance = torch.empty(len(self.phi), n_way, dtype=self.phi.dtype, device=self.phi.device)
        size = max(1, _NUMBERS_AT_ONCE // (n_way * d))
        for rows in torch.split(torch.arange(len(self.phi), device=self.phi.device), size):
            part, y = self.phi[rows], self.y[rows]
            products = part @ self.T  # [C, rows, D]
            inner = (products * part).sum(-1)
            difference = products - products[y, torch.arange(len(rows))]
            coupled = ((difference @ self.R) * difference).sum(-1)
            variance[rows] = (inner + inner[y, torch.arange(len(rows))] - coupled).mT
        return variance


def _class_products(phi: Tensor, y: Tensor, w: Tensor, n_way: int) -> Tensor:
    """A_c = Phi_c^T W_c Phi_c [C, D, D]."""
    scaled = w.sqrt()[:, None] * phi
    out = torch.empty(n_way, phi.shape[1], phi.shape[1], dtype=phi.dtype, device=phi.device)
    for c in range(n_way):
        rows = scaled[y == c]
        torch.mm(rows.mT, rows, out=out[c])
    return out
