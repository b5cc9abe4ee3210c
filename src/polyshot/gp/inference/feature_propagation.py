"""The tied posterior in feature space: no N x N matrix, for many examples and few features.

For K = Phi Phi^T the logits are f_c = Phi w_c with w_c ~ N(0, I) [D]. With sites that share a precision w_i per
example (tied_propagation.py), A_c = Phi_c^T W_c Phi_c of class c's rows and A = sum_c A_c, the precision of all C
weight vectors has the D x D blocks [c = c'] (I + A + C A_c) - A_c - A_c'. Let E be the stack of C identities and

    T_c = (I + A + C A_c)^-1,    R = (sum_c T_c)^-1

Then the precision is P T^-1 P + E E^T / C, where P = I - E E^T / C takes away what all classes share. Hence

    Cov[w_c, w_c'] = I / C + [c = c'] T_c - T_c R T_c'
    log |precision| = -sum_c log |T_c| + log |sum_c T_c| - D log C
    Var[f_y - f_c] = phi^T (T_y + T_c - (T_y - T_c) R (T_y - T_c)) phi

and with b = A^T kappa, whose rows sum to zero, E[w_c] = T_c (beta_c - R sum_k T_k beta_k), beta_c = Phi^T b_c.

A class of fewer examples than features changes M = (I + A)^-1 by a matrix of low rank. With V_c = W_c^1/2 Phi_c,

    T_c = M - U_c U_c^T,    U_c = M V_c^T L_c^-T,    L_c L_c^T = I / C + V_c M V_c^T

so a sweep costs O(N D^2 + D^3) for any number of classes, and O(N C D) for the means. The variances of all N C
differences cost O(N C D^2) more. Their sum over the classes costs O(N D^2): with Q = sum_c T_c R T_c it is

    phi^T (C T_y + sum_c T_c - C T_y R T_y - Q) phi

and its mean can stand for each of them. The tests compare all of it with TiedConditional.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.inference.class_weights import ClassWeights, class_weights, coupled, total_weights
from polyshot.gp.inference.tied_conditional import LeaveOneOut
from polyshot.gp.models.posterior import Logits, cholesky, log_determinant
from polyshot.gp.validation import check_finite_tensor

_NUMBERS_AT_ONCE = 2**22
_SMALL = 300  # examples; below, the kernel matrix is quicker whatever the operations


@dataclass(frozen=True)
class FactoredKernel:
    """A kernel matrix K = phi phi^T that is known by its features and never formed.

    Parameters
    ----------
    phi : Tensor [N, D]
        Features of the examples.
    each_pair : bool
        Whether the difference of every pair of logits gets its own variance, or all those of an example their mean.
    """

    phi: Float[Tensor, "n d"]
    each_pair: bool = True

    def __len__(self) -> int:
        return len(self.phi)

    def diagonal(self) -> Float[Tensor, "n"]:
        """The variance of every example."""
        return self.phi.square().sum(-1)

    def matrix(self) -> Float[Tensor, "n n"]:
        """K itself."""
        return self.phi @ self.phi.mT


def feature_space_is_cheaper(n: int, d: int, n_way: int) -> bool:
    """Whether sweeps by D features cost fewer operations than by the N x N kernel matrix."""
    return n > _SMALL and _operations(n, d, n_way)[1] < _operations(n, d, n_way)[0]


def _operations(n: int, d: int, n_way: int) -> tuple[float, float]:
    """Operations of a sweep by the kernel matrix and by features, with the factors that were measured."""
    return 3.0 * n**3, 10.0 * n * d**2 + 6.0 * min(n_way * d, 2 * n) * d**2 + 4.0 * d**3


@dataclass(frozen=True)
class FeatureConditional(LeaveOneOut):
    """p(f | X, Y, sites) of tied sites, by the weights of the features.

    Attributes
    ----------
    kernel, y
        Features and labels of the support set.
    classes : list
        T_c of every class.
    dense : Tensor [K, D, D]
        T_c of those K classes that are not of low rank.
    total, R : Tensor [D, D]
        The sum of all T_c, and its inverse.
    log_det : float
        The logarithm of the determinant of the precision.
    a : Tensor [D, C]
        Posterior mean of the weights: a query's mean logits are its features times these.
    log_integral : float
        log of the sites' integral against the prior, up to the scales of the sites.
    """

    kernel: FactoredKernel
    y: Int[Tensor, "n"]
    classes: list[ClassWeights]
    dense: Float[Tensor, "k d d"]
    total: Float[Tensor, "d d"]
    R: Float[Tensor, "d d"]
    log_det: float
    a: Float[Tensor, "d c"]
    log_integral: float

    @staticmethod
    def of(
        kernel: FactoredKernel,
        y: Int[Tensor, "n"],
        w: Float[Tensor, "n"],
        kappa: Float[Tensor, "n c"],
        spare: "FeatureConditional | None" = None,
    ) -> "FeatureConditional":
        """The posterior that sites of precision w_i and kappa_ic (zero at the own class) give.

        The tensor `dense` of `spare` is overwritten.
        """
        d, n_way = kernel.phi.shape[1], kappa.shape[1]
        classes, dense = class_weights(kernel.phi, y, w, n_way, None if spare is None else spare.dense)
        total = total_weights(classes, dense)
        L = cholesky(total)
        R = torch.cholesky_inverse(L)
        log_det = float(log_determinant(L)) - sum(c.log_det for c in classes) - d * float(np.log(n_way))
        nothing = kappa.new_zeros(d, n_way)
        return FeatureConditional(kernel, y, classes, dense, total, R, log_det, nothing, 0.0).with_kappa(kappa)

    def with_kappa(self, kappa: Float[Tensor, "n c"]) -> "FeatureConditional":
        """The posterior for another kappa, in O(N C D), because the matrices depend on the precisions alone."""
        b = kappa.neg()  # A^T kappa
        b.scatter_(1, self.y[:, None], kappa.sum(-1, keepdim=True))
        beta = self.kernel.phi.mT @ b
        own = self._each_times(beta)  # T_c beta_c, [D, C]
        shared = self.R @ own.sum(-1, keepdim=True)
        weights = own - self._each_times(shared.expand_as(own))
        log_integral = float((beta * weights).sum() - self.log_det) / 2
        return replace(self, a=weights, log_integral=log_integral)

    def _each_times(self, beta: Float[Tensor, "d c"]) -> Float[Tensor, "d c"]:
        """T_c beta_c for every class."""
        if not any(c.low_rank for c in self.classes):
            return (self.dense @ beta.mT[..., None]).squeeze(-1).mT
        product = next(c.base for c in self.classes if c.low_rank) @ beta
        for k, c in enumerate(self.classes):
            if not c.low_rank:
                product[:, k] = c.base @ beta[:, k]
            elif c.U.shape[1]:
                product[:, k] -= c.U @ (c.U.mT @ beta[:, k])
        return product

    def psi(self) -> Float[Tensor, "n c"]:
        """The mean of psi = f_y - f_c for every example of the support set."""
        f = self.kernel.phi @ self.a
        return torch.sub(f.gather(1, self.y[:, None]), f, out=f)

    def contrasts(self) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Mean and variance of psi for every example of the support set."""
        return self.psi(), self._each_variance() if self.kernel.each_pair else self._mean_variance()

    def query(self, phi_star: Float[Tensor, "q d"], k_star_star: Float[Tensor, "q"]) -> Logits:
        """Mean and full C x C covariance of the query logits, as one chain.

        What phi_star lacks of the variance k_star_star is taken to be independent between the classes.
        """
        if phi_star.ndim != 2 or phi_star.shape[1] != len(self.a) or k_star_star.shape != phi_star.shape[:1]:
            raise InputError(
                f"phi_star must be [Q, {len(self.a)}] and k_star_star [Q]; their shapes are {tuple(phi_star.shape)} "
                f"and {tuple(k_star_star.shape)}"
            )
        check_finite_tensor("phi_star", phi_star)
        n_way = len(self.classes)
        products = torch.stack([c.times(phi_star) for c in self.classes])  # T_c phi of every query, [C, Q, D]
        inner = (products * phi_star).sum(-1).mT
        by_query = products.movedim(0, 1)
        covariance = ((by_query @ self.R) @ by_query.mT).neg_()
        known = phi_star.square().sum(-1)
        covariance.add_((known / n_way)[:, None, None])
        covariance.diagonal(dim1=-2, dim2=-1).add_(inner + (k_star_star - known).clamp(min=0)[:, None])
        return Logits((phi_star @ self.a)[None], covariance[None])

    def of_rows(self, rows: Int[Tensor, "r"]) -> Logits:
        """The logits of some examples."""
        phi = self.kernel.phi[rows]
        return self.query(phi, phi.square().sum(-1))

    @cached_property
    def _root(self) -> Float[Tensor, "d d"]:
        """L with R = L L^T."""
        return cholesky(self.R)

    def _each_variance(self) -> Tensor:
        """Var[f_y - f_c] for every example and class."""
        phi = self.kernel.phi
        inner, rooted = torch.empty_like(phi[:, 0]), torch.empty_like(phi)
        for c in self.classes:
            product = c.times(phi[c.rows])
            inner[c.rows] = (product * phi[c.rows]).sum(-1)
            rooted[c.rows] = product @ self._root
        variance = torch.zeros(len(phi), len(self.classes), dtype=phi.dtype, device=phi.device)
        for rows in torch.split(torch.arange(len(phi), device=phi.device), max(1, _NUMBERS_AT_ONCE // phi.shape[1])):
            part = phi[rows]
            for k, c in enumerate(self.classes):
                product = c.times(part)
                shared = (rooted[rows] - product @ self._root).square().sum(-1)
                variance[rows, k] = inner[rows] + (product * part).sum(-1) - shared
        return variance.scatter_(1, self.y[:, None], 0.0)

    def _mean_variance(self) -> Tensor:
        """The mean over the other classes of Var[f_y - f_c]."""
        phi, n_way, L = self.kernel.phi, len(self.classes), self._root
        low = [c for c in self.classes if c.low_rank]
        shared = self.total - coupled(low, L)
        dense = [c for c in self.classes if not c.low_rank]
        for c in dense:
            product = c.base @ L
            shared.addmm_(product, product.mT, alpha=-1.0)
        mean = torch.empty_like(phi[:, 0])
        for c in dense:
            product = c.base @ L
            form = torch.addmm(shared, product, product.mT, alpha=-n_way).add_(c.base, alpha=n_way)
            part = phi[c.rows]
            mean[c.rows] = ((part @ form) * part).sum(-1)
        for c in low:
            part = phi[c.rows]
            product = c.times(part)
            own = (product * part).sum(-1) - (product @ L).square().sum(-1)
            mean[c.rows] = n_way * own + ((part @ shared) * part).sum(-1)
        variance = (mean / (n_way - 1))[:, None].repeat(1, n_way)
        return variance.scatter_(1, self.y[:, None], 0.0)
