"""Sets of labels from the same labels by MAPIE and crepes, through their own classes.

All of them get OneVsEachClassifier as the model, so that only the way to a guarantee differs:

- "MAPIE, split" and "crepes, split": every other example of a class fits the model, the rest calibrates. MAPIE has its
  default score ("lac"), crepes its default smoothing, which is random and makes the coverage exact;
- "MAPIE, cross": five folds, or as many as a class has examples, and no label is spent on calibration alone.

MAPIE refuses a level for which there are too few calibration examples. Its users would then have to keep all labels.
"""

import warnings
from collections.abc import Iterator

import numpy as np
from crepes import WrapClassifier
from mapie.classification import CrossConformalClassifier, SplitConformalClassifier

from polyshot.estimator import OneVsEachClassifier

RIVALS = ("MAPIE, split", "crepes, split", "MAPIE, cross")


def rival_sets(
    X: np.ndarray, y: np.ndarray, query: np.ndarray, levels: tuple[float, ...], seed: int, cross: bool
) -> Iterator[tuple[str, float, np.ndarray]]:
    """Name, level and set [C] of every rival for one query; `cross` costs five fits and is left out without it."""
    place = np.array([np.sum(y[:i] == y[i]) for i in range(len(y))])
    calibrates = place % 2 == 1
    held_out = X[calibrates], y[calibrates]
    model = OneVsEachClassifier().fit(X[~calibrates], y[~calibrates])
    wrapped = WrapClassifier(model)
    wrapped.calibrate(*held_out, seed=seed)
    every_label = np.ones(len(model.classes_), dtype=bool)
    folds = min(5, int(np.bincount(y).min()))
    for level in levels:
        split = SplitConformalClassifier(model, confidence_level=level, prefit=True).conformalize(*held_out)
        enough = _enough(len(held_out[0]), level)
        yield RIVALS[0], level, split.predict_set(query)[1][0, :, 0] if enough else every_label
        yield RIVALS[1], level, wrapped.predict_set(query, labels=False, confidence=level, seed=seed)[0] > 0
    if cross:
        possible = [level for level in levels if _enough(len(X), level)]
        several = CrossConformalClassifier(
            OneVsEachClassifier(), confidence_level=possible, cv=folds, random_state=seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about classes with fewer examples than folds
            sets = several.fit_conformalize(X, y).predict_set(query)[1][0]
        for level in levels:
            yield RIVALS[2], level, sets[:, possible.index(level)] if level in possible else every_label


def _enough(n: int, level: float) -> bool:
    """Whether MAPIE accepts the level with n calibration examples."""
    return n >= 1 / (1 - level)
