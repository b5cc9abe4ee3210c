"""A kernel that varies little between neighbours: deformed by the graph Laplacian of unlabelled points.

Of all functions that fit the labels, those that change little where points lie close together are preferred. So the
prior of a function f gets the further factor exp(-s |L f|^2 / 2) for its values f at n points, where L is the symmetric
normalised Laplacian of their nearest-neighbour graph. The prior stays a GP, with the kernel (Sindhwani, Niyogi and
Belkin, 2005)

    k~(x, z) = k(x, z) - k(x, .) (I + M K)^-1 M k(., z),    M = s L^2 .

No point needs to be one of the n: the formula holds for all x and z. Points that belong to no class only shape the
function where they are, so they do little harm elsewhere.

Eigenvectors serve all strengths s. Let B be a matrix with B B^T = K_mm^-1 for m landmarks, and F = K_nm B the features
of the n points in their span. With the eigenvalues e and eigenvectors V of (L F)^T (L F), and r(x) = k(x, .) B V,

    k~(x, z) = k(x, z) - r(x) diag(s e / (1 + s e)) r(z)^T .

The formula is exact if the landmarks are all n points, or span the features of the kernel. Otherwise the part of k
outside their span stays as it was. The cost is O(n^2 D) for the neighbours and O(n m^2 + m^3) for the rest.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

_CHUNK_NUMBERS = 2**22
_RANK_TOLERANCE = 1e-10  # eigenvalues of K_mm below this share of the largest are rounding


class Deformation(NamedTuple):
    """Where the kernel is deformed: r(x) = k(x, landmarks) @ basis, and the energy e of each column of r."""

    basis: Float[Tensor, "m r"]
    energy: Float[Tensor, "r"]

    def __call__(
        self,
        K: Float[Tensor, "q n"],
        K_left: Float[Tensor, "q m"],
        K_right: Float[Tensor, "n m"],
        strength: float,
    ) -> Float[Tensor, "q n"]:
        """The deformed K, from the covariances of its rows and of its columns with the landmarks."""
        return K - (K_left @ self.basis * self._removed(strength)) @ (K_right @ self.basis).mT

    def diagonal(
        self, variances: Float[Tensor, "q"], K_left: Float[Tensor, "q m"], strength: float
    ) -> Float[Tensor, "q"]:
        """The deformed variances, from the covariances with the landmarks."""
        return variances - (K_left @ self.basis).square() @ self._removed(strength)

    def _removed(self, strength: float) -> Float[Tensor, "r"]:
        return strength * self.energy / (1 + strength * self.energy)


def nearest_neighbours(
    covariance: Callable[[slice], Float[Tensor, "p n"]], variances: Float[Tensor, "n"], n_neighbours: int
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
    """The most correlated others of every point, and their correlations (0 if negative).

    `covariance(rows)` gives the covariances of some points with all; it is asked for chunks that bound the memory.
    """
    n = len(variances)
    root = variances.clamp(min=torch.finfo(variances.dtype).tiny).sqrt()
    step = max(1, _CHUNK_NUMBERS // n)
    found = []
    for rows in (slice(first, min(first + step, n)) for first in range(0, n, step)):
        correlations = covariance(rows) / root[rows, None] / root
        correlations[torch.arange(rows.stop - rows.start), torch.arange(rows.start, rows.stop)] = -torch.inf
        found.append(correlations.topk(min(n_neighbours, n - 1), dim=-1))
    return torch.cat([f.indices for f in found]), torch.cat([f.values for f in found]).clamp(min=0)


def graph_laplacian(neighbours: Int[Tensor, "n k"], weights: Float[Tensor, "n k"]) -> Tensor:
    """I - D^-1/2 W D^-1/2 as a sparse matrix; two points are joined if one is a neighbour of the other.

    A point whose weights are all zero has a row of zeros.
    """
    n, k = neighbours.shape
    left, right = torch.arange(n).repeat_interleave(k), neighbours.flatten()
    pairs, place = torch.cat([left * n + right, right * n + left]).unique(return_inverse=True)  # type: ignore[no-untyped-call]
    w = weights.new_zeros(len(pairs)).scatter_reduce(0, place, weights.flatten().repeat(2), "amax")
    left, right = pairs // n, pairs % n
    degree = w.new_zeros(n).scatter_add(0, left, w)
    root = torch.where(degree > 0, degree, torch.inf).rsqrt()
    indices = torch.cat([torch.stack([left, right]), torch.arange(n).repeat(2, 1)], dim=1)
    values = torch.cat([-w * root[left] * root[right], (degree > 0).to(w.dtype)])
    return torch.sparse_coo_tensor(indices, values, (n, n), check_invariants=False).coalesce()


def deformation(K_nm: Float[Tensor, "n m"], K_mm: Float[Tensor, "m m"], laplacian: Tensor) -> Deformation:
    """The deformation by n points, from their covariances with m landmarks, and the landmarks' own."""
    values, vectors = torch.linalg.eigh((K_mm + K_mm.mT) / 2)
    kept = values > _RANK_TOLERANCE * values[-1:].clamp(min=0)
    B = vectors[:, kept] / values[kept].sqrt()
    rough = torch.sparse.mm(laplacian, K_nm @ B)
    energy, V = torch.linalg.eigh(rough.mT @ rough)
    return Deformation(B @ V, energy.clamp(min=0))
