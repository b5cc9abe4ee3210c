"""Unlabelled examples: which rows of y they are, and the covariance that they deform (docs/estimator-unlabelled.md)."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.covariance import Covariance, KernelLike
from polyshot.estimator.hyperparameters import by_content
from polyshot.estimator.inputs import as_array, checked_examples, is_missing
from polyshot.estimator.rows import Features, Rows
from polyshot.gp import Deformation, as_tensor, deformation, graph_laplacian, nearest_neighbours

_NEIGHBOURS = 10
_STRENGTH = 10.0
_MOST_LANDMARKS, _MOST_LABELLED_LANDMARKS = 1000, 500


@dataclass(frozen=True)
class PooledCovariance(Covariance):
    """A covariance that varies little between neighbours among the examples and the pool.

    size_after is the mean variance of the labelled examples under the deformed kernel, before the division by it.
    """

    pool: Float[Tensor, "u d"]
    landmarks: Float[Tensor, "m d"]
    deformation: Deformation
    size_after: float

    @staticmethod
    def around(kernel: KernelLike, X: Float[Tensor, "n d"], pool: Float[Tensor, "u d"]) -> "PooledCovariance":
        """Centre, unit and graph from labelled examples X and the pool."""
        pool = pool[by_content(pool.numpy())]
        points = torch.cat([X, pool])
        landmarks = torch.cat([X[:_MOST_LABELLED_LANDMARKS], pool, X[_MOST_LABELLED_LANDMARKS:]])[:_MOST_LANDMARKS]
        plain = Covariance.of(kernel, points)
        graph = graph_laplacian(
            *nearest_neighbours(lambda rows: plain(points[rows], points), plain.diagonal(points), _NEIGHBOURS)
        )
        bent = deformation(plain(points, landmarks), plain(landmarks, landmarks), graph)
        copied = {field.name: getattr(plain, field.name) for field in fields(plain)}
        new = PooledCovariance(**copied, pool=pool, landmarks=landmarks, deformation=bent, size_after=1.0)
        variances = new.diagonal(X)
        positive = variances[variances > 0]
        return replace(new, size_after=float(positive.mean()) if len(positive) else 1.0)

    @property
    def plain(self) -> Covariance:
        """The covariance before the deformation."""
        return Covariance(**{field.name: getattr(self, field.name) for field in fields(Covariance)})

    def __call__(self, x: Float[Tensor, "q d"], z: Float[Tensor, "n d"]) -> Float[Tensor, "q n"]:
        """Covariance of every row of x with every row of z."""
        left, right = super().__call__(x, self.landmarks), super().__call__(z, self.landmarks)
        return self.deformation(super().__call__(x, z), left, right, _STRENGTH) / self.size_after

    def diagonal(self, x: Float[Tensor, "q d"]) -> Float[Tensor, "q"]:
        """Variance of every row of x."""
        near = super().__call__(x, self.landmarks)
        return self.deformation.diagonal(super().diagonal(x), near, _STRENGTH) / self.size_after


def covariance_of(
    kernel: KernelLike, X: Rows, pool: NDArray[np.float64], weights: Float[Tensor, "n"] | None = None
) -> Covariance:
    """The covariance for labelled examples and a pool, which may be empty. The graph of a pool ignores the weights."""
    return PooledCovariance.around(kernel, X, as_tensor(pool)) if len(pool) else Covariance.of(kernel, X, weights)


def pool_of(covariance: Covariance) -> NDArray[np.float64]:
    """The pool that the covariance was made with; no rows if there was none."""
    return (
        covariance.pool.numpy() if isinstance(covariance, PooledCovariance) else np.empty((0, len(covariance.centre)))
    )


def labelled_and_pool(
    estimator: Any, X: Any, y: Any, unlabeled: Any, *, reset: bool, label: Any = None
) -> tuple[Features, NDArray[Any], NDArray[np.float64]]:
    """Labelled rows of X, their labels, and the pool: the rows of X where y is `unlabeled`; () means no such value.

    `label` is one that the estimator knows already. Without it at least one row must have a label.
    """
    unknown = unlabelled_rows(y, unlabeled)
    if not unknown.any():
        X, y = checked_examples(estimator, X, y, reset=reset)
        return X, y, np.empty((0, X.shape[1]))
    labels = as_array("y", y).tolist()
    known = [name for name, missing in zip(labels, unknown, strict=True) if not missing]
    if not known and label is None:
        raise InputError(f"every row of y is unlabelled ({unlabeled!r}); give at least one label of two classes")
    some = known[0] if known else label
    # so that one check sees all rows: what is not labelled gets any label first
    filled = [some if missing else name for name, missing in zip(labels, unknown, strict=True)]
    X, y = checked_examples(estimator, X, filled, reset=reset)
    if issparse(X):
        raise InputError("rows without a label need dense X; use X.toarray(), or drop them")
    return X[~unknown], y[~unknown], X[unknown]


def unlabelled_rows(y: Any, unlabeled: Any) -> NDArray[np.bool_]:
    """Which rows of y are `unlabeled`; None and NaN stand for every kind of missing value, () for nothing."""
    labels = as_array("y", y)
    if isinstance(unlabeled, tuple) or labels.ndim != 1:
        return np.zeros(labels.shape[:1], dtype=bool)
    if is_missing(unlabeled):
        return np.array([is_missing(name) for name in labels.tolist()], dtype=bool)
    return np.array([not is_missing(name) and name == unlabeled for name in labels.tolist()], dtype=bool)


def check_unlabeled(value: Any) -> None:
    """Refuse what cannot be a label."""
    nothing = isinstance(value, tuple) and not value
    if not (nothing or is_missing(value) or isinstance(value, str | int | float | np.generic)):
        raise InputError(f"unlabeled must be a string, a number, None or () for no such value, not {value!r}")
