"""How good the answers are by now, and whether it is enough.

The labels themselves cannot tell: they were asked for because they are hard. So every fourth item is a spot check. It
is drawn at random from the open ones, and the page hides the model's answer until the person has given one. The accuracy
is the share of spot checks that the present model, without the item itself, answers as the person did.
"""

from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from polyshot.estimator import OneVsEachClassifier
from polyshot.gp import leave_one_out_of_all

Verdict: TypeAlias = Literal["start", "go on", "stable", "reached", "done"]

CHECK_EVERY = 4  # items
_TAIL = 0.05  # on each side of the interval
_STABLE_LABELS, _STABLE_SHARE = 20, 0.01  # so many decisions that change fewer answers are a sign to stop


class Accuracy(NamedTuple):
    """The expected share of right answers after so many decisions, with its 90 % interval, from so many spot checks."""

    n_decided: int
    n_checks: int
    accuracy: float
    low: float
    high: float


def accuracy(n_decided: int, model: OneVsEachClassifier, examples: Sequence[int]) -> Accuracy | None:
    """The accuracy by the spot checks among the model's examples, with Clopper and Pearson's interval.

    Parameters
    ----------
    n_decided : int
    model : OneVsEachClassifier
    examples : sequence of int
        Which examples are spot checks, by their numbers in the order of `fit` and every `add` since.

    Returns
    -------
    Accuracy or None
        None if there is no spot check.
    """
    if not examples:
        return None
    fitted = model.fitted_
    right = leave_one_out_of_all(fitted.posterior).numpy().argmax(1) == fitted.examples.labels
    k, n = int(right[np.isin(fitted.examples.rows, examples)].sum()), len(examples)
    low = float(beta.ppf(_TAIL, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(1 - _TAIL, k + 1, n - k)) if k < n else 1.0
    return Accuracy(n_decided, n, k / n, low, high)


class Stability:
    """How many answers the latest decisions changed."""

    def __init__(self) -> None:
        self._past: deque[tuple[int, NDArray[np.object_]]] = deque(maxlen=2 * _STABLE_LABELS)

    def add(self, n_decided: int, answers: NDArray[np.object_]) -> None:
        """Remember the answers about all rows ("" where there is none)."""
        while self._past and self._past[-1][0] >= n_decided:  # taken back
            self._past.pop()
        self._past.append((n_decided, answers))

    @property
    def changed(self) -> float | None:
        """The share of answers that the last 20 decisions changed; None if there were fewer."""
        if not self._past:
            return None
        n, now = self._past[-1]
        before = [answers for m, answers in self._past if m <= n - _STABLE_LABELS]
        if not before:
            return None
        both = (now != "") & (before[-1] != "")
        return float(np.mean(now[both] != before[-1][both])) if both.any() else None


def verdict(now: Accuracy | None, changed: float | None, n_open: int, target: float) -> Verdict:
    """Whether to go on labelling.

    Returns
    -------
    "start", "go on", "stable", "reached" or "done"
        Nothing was checked yet; go on; the last 20 decisions changed less than 1 % of the answers; the lower limit of
        the accuracy is at the target; nothing is open.
    """
    if not n_open:
        return "done"
    if now is None:
        return "start"
    if now.low >= target:
        return "reached"
    return "stable" if changed is not None and changed < _STABLE_SHARE else "go on"
