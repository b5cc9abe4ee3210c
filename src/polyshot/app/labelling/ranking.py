"""Which unlabelled items to show next."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus

from polyshot.estimator import OneVsEachClassifier

_CANDIDATES = 10  # per item asked for
_SPREAD = 30  # first items, one per region of the data
_SAMPLE = 3000  # items among which the first ones are looked for


def first_to_label(X: NDArray[np.float32], seed: int = 0) -> list[int]:
    """All rows in an order for somebody who knows nothing yet: first rows far from each other, then at random."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    sample = order[:_SAMPLE]
    _, spread = kmeans_plusplus(_unit(X[sample] - X[sample].mean(0)), min(_SPREAD, len(sample)), random_state=seed)
    first = list(dict.fromkeys(sample[spread].tolist()))
    taken = set(first)
    return first + [row for row in order.tolist() if row not in taken]


def choose_quickly(model: OneVsEachClassifier, X_pool: NDArray[np.float32], probabilities: Any, n: int) -> list[int]:
    """Rows of the pool whose labels would teach the model most: uncertain ones, unlike each other.

    `OneVsEachClassifier.next_to_label` chooses with more care, but takes longer than a person should wait for an item.
    Each row taken is the one with the largest product of uncertainty (1 less the largest probability) and distance to
    the rows taken before.
    """
    uncertainty = 1 - probabilities.max(1)
    candidates = np.argsort(-uncertainty, kind="stable")[: _CANDIDATES * n]
    unit = _unit(X_pool[candidates] - model.fitted_.covariance.centre.numpy().astype(np.float32))
    distance = np.ones(len(candidates), np.float32)
    worth = uncertainty[candidates] + 1e-9
    taken: list[int] = []
    for _ in range(min(n, len(candidates))):
        best = int(np.argmax(worth * distance))
        taken.append(best)
        distance = np.minimum(distance, 1 - unit @ unit[best])
        distance[taken] = -1
    return [int(row) for row in candidates[taken]]


def _unit(X: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    return unit
