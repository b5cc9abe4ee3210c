"""How good the answers are by now, and whether it is enough.

The labels themselves cannot tell: they were asked for because they are hard. So every fourth item is a spot check. It
is drawn at random from the open ones, and the model's answer, which the page hides, is compared with the person's.
"""

from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

Verdict: TypeAlias = Literal["start", "go on", "stable", "reached", "done"]

CHECK_EVERY = 4  # items
_WINDOW = 50  # latest spot checks that count: earlier ones tested a model that knew less
_TAIL = 0.05  # on each side of the interval
_STABLE_LABELS, _STABLE_SHARE = 20, 0.01  # so many decisions that change fewer answers are a sign to stop


class SpotCheck(NamedTuple):
    """One comparison, made when so many items were decided."""

    n_decided: int
    right: bool


class Accuracy(NamedTuple):
    """The share of right answers after so many decisions, with its 90 % interval."""

    n_decided: int
    accuracy: float
    low: float
    high: float


def accuracies(checks: Sequence[SpotCheck]) -> list[Accuracy]:
    """The accuracy after every spot check, from the latest 50, with Clopper and Pearson's interval."""
    found = []
    for last, check in enumerate(checks, start=1):
        window = [c.right for c in checks[max(0, last - _WINDOW) : last]]
        n, right = len(window), sum(window)
        low = float(beta.ppf(_TAIL, right, n - right + 1)) if right else 0.0
        high = float(beta.ppf(1 - _TAIL, right + 1, n - right)) if right < n else 1.0
        found.append(Accuracy(check.n_decided, right / n, low, high))
    return found


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
