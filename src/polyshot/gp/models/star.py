"""The factors of G = A^T B^-1 A for the one-vs-each GP; the formulas are derived in one_vs_each.py."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from polyshot.gp.models.posterior import cholesky, class_blocks, log_determinant, one_hot, own


@dataclass(frozen=True)
class OwnColumns:
    """The examples of each class, for multiplying column j of a matrix by R_{y_j} at the cost of one product.

    index [*batch, C * W] lists the examples class by class, where W is the size of the largest class (smaller classes
    are filled up with example 0, whose results are not read). place [*batch, N] is each example's position in it.
    """

    index: Tensor
    place: Tensor

    @staticmethod
    def of(y: Tensor, n_way: int) -> "OwnColumns":
        """The columns of labels y [*batch, N]."""
        Y = one_hot(y, n_way)
        width = int(Y.sum(-2).max())
        rank = Y.cumsum(-2).gather(-1, y[..., None]).squeeze(-1) - 1
        place = y * width + rank
        examples = torch.arange(y.shape[-1], device=y.device).expand_as(y)
        index = torch.zeros(*y.shape[:-1], n_way * width, dtype=torch.long, device=y.device)
        return OwnColumns(index.scatter(-1, place, examples), place)

    def product(self, R: Tensor, X: Tensor) -> Tensor:
        """The matrix with columns R_{y_j} X[:, j], for R [*batch, M, C, N, N] and X [*batch, M, N, N]."""
        n_way, n = R.shape[-3], R.shape[-1]
        index = self.index[..., None, None, :].expand(*X.shape[:-1], self.index.shape[-1])
        by_class = X.gather(-1, index).reshape(*X.shape[:-1], n_way, -1).movedim(-2, -3)
        products: Tensor = (R @ by_class).movedim(-3, -2).flatten(-2)
        return products.gather(-1, self.place[..., None, None, :].expand(*X.shape[:-1], n))


@dataclass(frozen=True)
class Star:
    """The factors of G: Y [*batch, N, C] one-hot, L1, L2 Cholesky factors of C1, C2, Z = L1^-1 (I - J)."""

    K: Tensor
    Y: Tensor
    R: Tensor
    J: Tensor
    L1: Tensor
    L2: Tensor
    Z: Tensor
    columns: OwnColumns

    @staticmethod
    def of(K: Tensor, y: Tensor, omega: Tensor) -> tuple["Star", Tensor]:
        """The factors for K [*batch, N, N], y [*batch, N], omega [*batch, M, N, C]; log |I + K A^T Omega A|."""
        R, log_det_H = class_blocks(K, omega)
        Y = one_hot(y, omega.shape[-1]).to(K)
        identity = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
        Kb = K[..., None, :, :]
        columns = OwnColumns.of(y, omega.shape[-1])
        J = columns.product(R, Kb.expand(*R.shape[:-3], *K.shape[-2:]))
        L1 = cholesky(R.sum(-3))
        Z = solve_triangular(L1, identity - J, upper=False)
        same = (Y @ Y.mT)[..., None, :, :]
        L2 = cholesky(same * (Kb - J.mT @ Kb) + Z.mT @ Z)
        log_det = log_det_H + log_determinant(L1) + log_determinant(L2)
        return Star(K, Y, R, J, L1, L2, Z, columns), log_det

    def solve(self, r: Tensor, y: Tensor) -> Tensor:
        """A^T B^-1 r [*batch, M, N, C], for r that is zero at each example's own class.

        It is -G1 r + U C2^-1 (t + own(K G1 r)), where G1 r = R (r - t) and t = C1^-1 sum_c R_c r_c.
        """
        K = self.K[..., None, :, :]
        Rr = self._blocks(r)
        t = torch.cholesky_solve(Rr.sum(-1, keepdim=True), self.L1)
        h = Rr - self._blocks(t.expand_as(r))
        p = torch.cholesky_solve(t + own(K @ h, y)[..., None], self.L2)
        x = self.Y[..., None, :, :] * p
        g = solve_triangular(self.L1.mT, self.Z @ p, upper=True)
        return x - h - self._blocks(K @ x + g)

    def factors(self) -> tuple[Tensor, Tensor]:
        """R_c L1^-T and U_c L2^-T, each [*batch, M, C, N, N], so that G_cc' = [c = c'] R_c - F1 F1^T + F2 F2^T.

        Column i of R_c K Y_c is column i of J, so that U_c = (I - J) Y_c - R_c C1^-1 (I - J).
        """
        shape = self.R.shape
        F1 = solve_triangular(self.L1.mT, self.R.flatten(-3, -2), upper=True, left=False)
        identity = torch.eye(shape[-1], dtype=self.K.dtype, device=self.K.device)
        centre = (identity - self.J)[..., None, :, :] * self.Y.mT[..., None, :, None, :]
        F2 = solve_triangular(self.L2.mT, centre.flatten(-3, -2) - F1 @ self.Z, upper=True, left=False)
        return F1.reshape(shape), F2.reshape(shape)

    def block_sum(self) -> Tensor:
        """sum_c G_cc [*batch, M, N, N].

        U_c = Y_c - R_c (K Y_c + P) with P = C1^-1 (I - J). When U_c C2^-1 U_c^T is expanded, only R_c S R_c, for one S,
        and products of own columns depend on the class.
        """
        identity = torch.eye(self.K.shape[-1], dtype=self.K.dtype, device=self.K.device).expand_as(self.L1)
        W1, W2 = (solve_triangular(L, identity, upper=False) for L in (self.L1, self.L2))
        own_block = (self.Y @ self.Y.mT)[..., None, :, :] * (W2.mT @ W2)
        E = W2 @ self.Z.mT @ W1  # E^T E = P C2^-1 P^T
        PQ = E.mT @ W2
        KQ = (own_block @ self.K[..., None, :, :]).mT
        cross = self.columns.product(self.R, KQ + PQ)
        F = self.columns.product(self.R, PQ + KQ / 2)
        S = E.mT @ E - W1.mT @ W1
        middle = self.R.flatten(-3, -2).mT @ (S[..., None, :, :] @ self.R).flatten(-3, -2)
        coupled = self.J @ F.mT - cross
        total: Tensor = self.R.sum(-3) + own_block + middle + coupled + coupled.mT
        return total

    def _blocks(self, x: Tensor) -> Tensor:
        """R_c x_c for every class, [*batch, M, N, C] to the same."""
        return (self.R @ x.mT[..., None]).squeeze(-1).mT
