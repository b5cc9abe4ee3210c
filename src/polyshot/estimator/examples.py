"""The labelled examples that a classifier has learned from."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from polyshot.estimator.rows import Features, in_form_of, stacked


@dataclass(frozen=True)
class Examples:
    """Features X [N, D] and labels [N], which are places in the sorted classes [C].

    rows [N] are the examples' numbers in the order in which the user gave them, from 0 to N - 1. weights [N] are the
    powers of their likelihoods; None if all are one.
    """

    X: Features
    labels: NDArray[np.int64]
    classes: NDArray[Any]
    rows: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    @staticmethod
    def of(X: Features, y: NDArray[Any], weights: NDArray[np.float64] | None = None) -> "Examples":
        """Examples with the labels y that the user gave."""
        classes, labels = np.unique(y, return_inverse=True)
        return Examples(X, labels.astype(np.int64), classes, np.arange(len(y)), weights)

    def grown(self, X: Features, y: NDArray[Any], weights: NDArray[np.float64] | None = None) -> "Examples":
        """Further examples behind these; y has the labels of all, `weights` are those of the further ones."""
        grown = Examples.of(stacked(self.X, in_form_of(self.X, X)), y)
        if self.weights is not None or weights is not None:
            old = np.ones(len(self.rows)) if self.weights is None else self.weights
            new = np.ones(X.shape[0]) if weights is None else weights
            grown = replace(grown, weights=np.r_[old, new])
        return replace(grown, rows=np.r_[self.rows, len(self.rows) + np.arange(X.shape[0])])

    def ordered(self, order: list[int]) -> "Examples":
        """The same examples in another order."""
        weights = None if self.weights is None else self.weights[order]
        return replace(self, X=self.X[order], labels=self.labels[order], rows=self.rows[order], weights=weights)

    def without(self, rows: NDArray[np.int64]) -> "Examples":
        """All but the examples with these numbers; the others are numbered again from 0 in the same order."""
        kept = ~np.isin(self.rows, rows)
        rest = Examples.of(self.X[kept], self.y[kept], None if self.weights is None else self.weights[kept])
        return replace(rest, rows=self.rows[kept].argsort().argsort())

    @property
    def y(self) -> NDArray[Any]:
        """The labels as the user gave them."""
        names: NDArray[Any] = self.classes[self.labels]
        return names

    @property
    def shots(self) -> NDArray[np.float64]:
        """How many examples each class has, each as often as its weight says."""
        return np.bincount(self.labels, self.weights).astype(np.float64)

    @property
    def powers(self) -> Float[Tensor, "n"] | None:
        """The weights as a tensor."""
        return None if self.weights is None else torch.from_numpy(self.weights)
