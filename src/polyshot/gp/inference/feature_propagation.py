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

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.inference.tied_conditional import LeaveOneOut
from polyshot.gp.models.posterior import Logits, cholesky, log_determinant, one_hot
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


class _ClassWeights(NamedTuple):
    """T_c = base - U U^T of one class, the rows of its examples and log |T_c|."""

    rows: Int[Tensor, "m"]
    base: Float[Tensor, "d d"]
    U: Float[Tensor, "d r"]
    log_det: float

    def times(self, phi: Float[Tensor, "*q d"]) -> Float[Tensor, "*q d"]:
        """phi T_c."""
        return phi @ self.base - (phi @ self.U) @ self.U.mT


@dataclass(frozen=True)
class FeatureConditional(LeaveOneOut):
    """p(f | X, Y, sites) of tied sites, by the weights of the features.

    Attributes
    ----------
    kernel, y
        Features and labels of the support set.
    classes : list
        T_c of every class.
    total, R : Tensor [D, D]
        The sum of all T_c, and its inverse.
    a : Tensor [D, C]
        Posterior mean of the weights: a query's mean logits are its features times these.
    log_integral : float
        log of the sites' integral against the prior, up to the scales of the sites.
    """

    kernel: FactoredKernel
    y: Int[Tensor, "n"]
    classes: list[_ClassWeights]
    total: Float[Tensor, "d d"]
    R: Float[Tensor, "d d"]
    a: Float[Tensor, "d c"]
    log_integral: float

    @staticmethod
    def of(
        kernel: FactoredKernel, y: Int[Tensor, "n"], w: Float[Tensor, "n"], kappa: Float[Tensor, "n c"]
    ) -> "FeatureConditional":
        """The posterior that sites of precision w_i and kappa_ic (zero at the own class) give."""
        phi, (d, n_way) = kernel.phi, (kernel.phi.shape[1], kappa.shape[1])
        classes = _class_weights(phi, y, w, n_way)
        total = torch.zeros_like(classes[0].base)
        for c in classes:
            total.add_(c.base).addmm_(c.U, c.U.mT, alpha=-1.0)
        L = cholesky(total)
        R = torch.cholesky_inverse(L)
        beta = phi.mT @ (one_hot(y, n_way).to(phi) * kappa.sum(-1, keepdim=True) - kappa)
        own = torch.stack([c.times(b) for c, b in zip(classes, beta.mT, strict=True)])  # T_c beta_c, [C, D]
        shared = R @ own.sum(0)
        weights = (own - torch.stack([c.times(shared) for c in classes])).mT.contiguous()
        log_det = float(log_determinant(L)) - sum(c.log_det for c in classes) - d * np.log(n_way)
        return FeatureConditional(kernel, y, classes, total, R, weights, float((beta * weights).sum() - log_det) / 2)

    def contrasts(self) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Mean and variance of psi = f_y - f_c for every example of the support set."""
        f = self.kernel.phi @ self.a
        psi = f.gather(1, self.y[:, None]) - f
        return psi, self._each_variance() if self.kernel.each_pair else self._mean_variance()

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

    def _own_products(self) -> tuple[Tensor, Tensor]:
        """phi^T T_y phi [N] and phi^T T_y L [N, D] of every example and its class y."""
        phi = self.kernel.phi
        inner, rooted = torch.empty_like(phi[:, 0]), torch.empty_like(phi)
        for c in self.classes:
            product = c.times(phi[c.rows])
            inner[c.rows] = (product * phi[c.rows]).sum(-1)
            rooted[c.rows] = product @ self._root
        return inner, rooted

    def _each_variance(self) -> Tensor:
        """Var[f_y - f_c] for every example and class."""
        phi, (inner, rooted) = self.kernel.phi, self._own_products()
        variance = torch.zeros(len(phi), len(self.classes), dtype=phi.dtype, device=phi.device)
        for rows in torch.split(torch.arange(len(phi), device=phi.device), max(1, _NUMBERS_AT_ONCE // phi.shape[1])):
            part = phi[rows]
            for k, c in enumerate(self.classes):
                product = c.times(part)
                coupled = (rooted[rows] - product @ self._root).square().sum(-1)
                variance[rows, k] = inner[rows] + (product * part).sum(-1) - coupled
        return variance.scatter_(1, self.y[:, None], 0.0)

    def _mean_variance(self) -> Tensor:
        """The mean over the other classes of Var[f_y - f_c]."""
        phi, n_way, (inner, rooted) = self.kernel.phi, len(self.classes), self._own_products()
        shared = self.total - self._coupled()
        total = n_way * (inner - rooted.square().sum(-1)) + ((phi @ shared) * phi).sum(-1)
        variance = (total / (n_way - 1))[:, None].repeat(1, n_way)
        return variance.scatter_(1, self.y[:, None], 0.0)

    def _coupled(self) -> Tensor:
        """Q = sum_c T_c R T_c; classes of low rank share their products with M."""
        L, Q = self._root, torch.zeros_like(self.R)
        low = [c for c in self.classes if c.U.shape[1]]
        for c in self.classes:
            if not c.U.shape[1]:
                product = c.base @ L
                Q.addmm_(product, product.mT)
        if low:
            ML, U = low[0].base @ L, torch.cat([c.U for c in low], 1)
            UL = U.mT @ L
            parts = torch.split(UL, [c.U.shape[1] for c in low])
            inner = torch.cat([c.U @ (part @ part.mT) for c, part in zip(low, parts, strict=True)], 1)
            crossed = (U @ UL) @ ML.mT
            Q += len(low) * ML @ ML.mT - crossed - crossed.mT + inner @ U.mT
        return Q


def _class_weights(phi: Tensor, y: Tensor, w: Tensor, n_way: int) -> list[_ClassWeights]:
    d = phi.shape[1]
    scaled = w.sqrt()[:, None] * phi
    sizes = y.bincount(minlength=n_way).tolist()
    groups = torch.split(y.argsort(stable=True), sizes)
    precision = scaled.mT @ scaled
    precision.diagonal().add_(1.0)
    L_M = cholesky(precision)
    M, log_det_M = torch.cholesky_inverse(L_M), -float(log_determinant(L_M))
    nothing = phi.new_empty(d, 0)
    classes = []
    for rows, size in zip(groups, sizes, strict=True):
        V = scaled[rows]
        if 2 * size < d:
            MV = M @ V.mT
            small = V @ MV
            small.diagonal().add_(1 / n_way)
            L = cholesky(small)
            U = torch.linalg.solve_triangular(L, MV.mT, upper=False).mT
            log_det = log_det_M - float(log_determinant(L)) - size * np.log(n_way)
            classes.append(_ClassWeights(rows, M, U, log_det))
        else:
            L = cholesky(torch.addmm(precision, V.mT, V, alpha=n_way))
            classes.append(_ClassWeights(rows, torch.cholesky_inverse(L), nothing, -float(log_determinant(L))))
    return classes
