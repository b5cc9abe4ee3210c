"""Sets of labels from the same labels by MAPIE and crepes, through their own classes.

Both get OneVsEachClassifier as the model, so that only the way to a guarantee differs: every other example of a class
fits the model, the rest calibrates. MAPIE has its default score ("lac"), crepes its default smoothing, which is random
and makes the coverage exact. MAPIE refuses a level for which there are too few calibration examples; its users would
then have to keep all labels. `python -m benchmarks.comparisons` has MAPIE's cross-conformal sets too.
"""

from collections.abc import Iterator

import numpy as np
from crepes import WrapClassifier
from mapie.classification import SplitConformalClassifier

from polyshot.estimator import OneVsEachClassifier

RIVALS = ("MAPIE, split", "crepes, split")


def rival_sets(
    X: np.ndarray, y: np.ndarray, query: np.ndarray, levels: tuple[float, ...], seed: int
) -> Iterator[tuple[str, float, np.ndarray]]:
    """Name, level and set [C] of every rival for one query."""
    place = np.array([np.sum(y[:i] == y[i]) for i in range(len(y))])
    calibrates = place % 2 == 1
    held_out = X[calibrates], y[calibrates]
    model = OneVsEachClassifier().fit(X[~calibrates], y[~calibrates])
    wrapped = WrapClassifier(model)
    wrapped.calibrate(*held_out, seed=seed)
    for level in levels:
        split = SplitConformalClassifier(model, confidence_level=level, prefit=True).conformalize(*held_out)
        enough = len(held_out[0]) >= 1 / (1 - level) - 1e-9  # MAPIE's own condition
        yield RIVALS[0], level, split.predict_set(query)[1][0, :, 0] if enough else np.ones(len(model.classes_), bool)
        yield RIVALS[1], level, wrapped.predict_set(query, labels=False, confidence=level, seed=seed)[0] > 0
