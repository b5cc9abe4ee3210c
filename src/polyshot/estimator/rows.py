"""Rows of features, dense or sparse (TF-IDF), and the covariances of sparse ones without a dense copy of them.

For rows x, z and a centre c, (x - c)(z - c)^T = x z^T - x c - (z c)^T + |c|^2: only products of sparse rows are needed.
The cosine takes unit rows u first, and |u - c|^2 = 1 - 2 u c + |c|^2 gives the length of what is centred. A zero row
has no direction: it is not centred and stays zero.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from polyshot.errors import InputError
from polyshot.gp import as_tensor

Features = Any  # an array [n, d] of float64, or a csr_array of these
Rows = Any  # a tensor [n, d], or a csr_array


def as_rows(X: Features) -> Rows:
    """Features as a tensor, or as they are if they are sparse."""
    return X if issparse(X) else as_tensor(X)


def in_form_of(examples: Features, X: Features) -> Features:
    """X, made sparse if the examples are; sparse rows are not made dense, which might not fit into memory."""
    if issparse(examples):
        return csr_array(X)
    if issparse(X):
        raise InputError("X is sparse, but the examples are not; use X.toarray()")
    return X


def stacked(X: Any, Z: Any) -> Any:
    """The rows of X and then those of Z; both are arrays, or both sparse."""
    return csr_array(vstack([X, Z])) if issparse(X) else np.concatenate([X, Z])


def content(X: Features) -> Iterator[bytes]:
    """The content of every row, whatever its place."""
    if not issparse(X):
        return (row.tobytes() for row in X)
    bounds = zip(X.indptr[:-1], X.indptr[1:], strict=True)
    return (X.indices[i:j].astype(np.int64).tobytes() + X.data[i:j].tobytes() for i, j in bounds)


class Centred(NamedTuple):
    """Sparse rows that stand for values - there * centre, divided by `length`."""

    values: csr_array
    there: NDArray[np.float64]
    by_centre: NDArray[np.float64]
    length: NDArray[np.float64]

    @staticmethod
    def of(x: csr_array, centre: NDArray[np.float64], length: float) -> "Centred":
        """Rows less the centre, all divided by one length."""
        return Centred(x, np.ones(x.shape[0]), x @ centre, np.full(x.shape[0], length))

    @staticmethod
    def directions(u: csr_array, centre: NDArray[np.float64]) -> "Centred":
        """Unit rows less the centre, then of length one again."""
        there, by_centre = (np.diff(u.indptr) > 0).astype(np.float64), u @ centre
        length = np.sqrt((there * (1 - 2 * by_centre + centre @ centre)).clip(min=0))
        return Centred(u, there, by_centre, np.where(length > 0, length, np.inf))

    def squares(self, centre: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squared length of every row."""
        own = np.asarray(self.values.multiply(self.values).sum(1)).ravel()
        return (own - 2 * self.by_centre + self.there * (centre @ centre)) / self.length**2

    def times(self, other: "Centred", centre: NDArray[np.float64]) -> NDArray[np.float64]:
        """Inner products of all these rows with all others."""
        inner: NDArray[np.float64] = (self.values @ other.values.T).toarray()
        inner -= self.by_centre[:, None] * other.there
        inner -= self.there[:, None] * (other.by_centre - (centre @ centre) * other.there)
        inner /= self.length[:, None]
        inner /= other.length
        return inner


def unit_sparse(x: csr_array, roots: bool) -> csr_array:
    """Rows, or their square roots, divided by their length; zero rows stay zero."""
    x = csr_array(x, copy=True)
    if roots:
        x.data = np.sign(x.data) * np.sqrt(np.abs(x.data))
    counts = np.diff(x.indptr)
    full = np.flatnonzero(counts)
    x.data /= np.repeat(np.maximum.reduceat(np.abs(x.data), x.indptr[full]), counts[full])  # squares may overflow
    x.data /= np.repeat(np.sqrt(np.add.reduceat(x.data**2, x.indptr[full])), counts[full])
    return x
