"""The weights of every class in feature space: T_c of feature_propagation.py, whole or as a change of low rank."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp.models.posterior import cholesky, log_determinant


class ClassWeights(NamedTuple):
    """T_c of one class: base - U U^T with the base that such classes share if low_rank, else the base; and log |T_c|.

    `rows` are the class's examples.
    """

    rows: Int[Tensor, "m"]
    base: Float[Tensor, "d d"]
    U: Float[Tensor, "d r"]
    log_det: float
    low_rank: bool

    def times(self, phi: Float[Tensor, "*q d"]) -> Float[Tensor, "*q d"]:
        """phi T_c."""
        product = phi @ self.base
        return product - (phi @ self.U) @ self.U.mT if self.low_rank else product


def class_weights(
    phi: Tensor, y: Tensor, w: Tensor, n_way: int, spare: Tensor | None = None
) -> tuple[list[ClassWeights], Tensor]:
    """T_c of every class, and of those not of low rank again as one tensor, whose parts the classes have.

    That tensor may be given, to be overwritten.
    """
    d, root = phi.shape[1], w.sqrt()
    groups = torch.split(y.argsort(stable=True), y.bincount(minlength=n_way).tolist())
    few, many = ([rows for rows in groups if (2 * len(rows) < d) == low] for low in (True, False))
    precision = torch.eye(d, dtype=phi.dtype, device=phi.device)  # I + A
    if few:
        V = root[torch.cat(few), None] * phi[torch.cat(few)]
        precision.addmm_(V.mT, V)
    dense = phi.new_empty(len(many), d, d) if spare is None else spare
    for A, rows in zip(dense, many, strict=True):
        V = root[rows, None] * phi[rows]
        precision += torch.matmul(V.mT, V, out=A)
    if few:
        L_M = cholesky(precision)
        M, log_det_M = torch.cholesky_inverse(L_M), -float(log_determinant(L_M))
    classes, own = [], iter(dense)
    for rows in groups:
        if 2 * len(rows) >= d:
            T = next(own)
            L = cholesky(T.mul_(n_way).add_(precision))
            torch.cholesky_inverse(L, out=T)
            classes.append(ClassWeights(rows, T, phi.new_empty(d, 0), -float(log_determinant(L)), False))
        else:
            V = root[rows, None] * phi[rows]
            MV = M @ V.mT
            small = V @ MV
            small.diagonal().add_(1 / n_way)
            L = cholesky(small)
            U = torch.linalg.solve_triangular(L, MV.mT, upper=False).mT
            log_det = log_det_M - float(log_determinant(L)) - len(rows) * float(np.log(n_way))
            classes.append(ClassWeights(rows, M, U, log_det, True))
    return classes, dense


def total_weights(classes: list[ClassWeights], dense: Tensor) -> Tensor:
    """The sum of all T_c."""
    total, low = dense.sum(0), [c for c in classes if c.low_rank]
    if low:
        U = torch.cat([c.U for c in low], 1)
        total.add_(low[0].base, alpha=len(low)).addmm_(U, U.mT, alpha=-1.0)
    return total


def coupled(low: list[ClassWeights], L: Tensor) -> Tensor:
    """The sum of T_c R T_c over the classes of low rank, which share their products with M; R = L L^T."""
    if not low:
        return torch.zeros_like(L)
    ML, U = low[0].base @ L, torch.cat([c.U for c in low], 1)
    UL = U.mT @ L
    parts = torch.split(UL, [c.U.shape[1] for c in low])
    inner = torch.cat([c.U @ (part @ part.mT) for c, part in zip(low, parts, strict=True)], 1)
    crossed = (U @ UL) @ ML.mT
    return len(low) * ML @ ML.mT - crossed - crossed.mT + inner @ U.mT
