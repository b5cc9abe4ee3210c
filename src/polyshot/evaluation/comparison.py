"""Is the difference between two runs real? Both saw the same episodes, so the test is paired."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from polyshot.errors import InputError
from polyshot.evaluation.checks import ArrayOrTensor, finite_array, to_numpy
from polyshot.evaluation.metrics import Interval, mean_interval

_MOST_ENUMERATED = 20  # 2^19 sign patterns (the other half mirrors them) take milliseconds
_CHUNK = 2**21


@dataclass(frozen=True)
class PairedComparison:
    """Result of a paired comparison, first run minus second.

    Attributes
    ----------
    difference : Interval
        Mean difference per episode with Student's interval.
    p_value : float
        Two-sided p-value of the sign-flip test.
    n_episodes : int
    exact : bool
        Whether every sign pattern was tried.
    """

    difference: Interval
    p_value: float
    n_episodes: int
    exact: bool


def compare_paired(
    first: ArrayOrTensor,
    second: ArrayOrTensor,
    seed: int | np.random.Generator,
    n_flips: int = 10_000,
    level: float = 0.95,
) -> PairedComparison:
    """Compare per-episode figures (accuracy, AUROC, ...) of two runs on the same episodes, by a sign-flip test.

    If the runs are equally good, each episode's difference is as likely as its negative. The p-value is the share of
    sign patterns whose mean is at least as far from 0 as the observed one. All patterns are enumerated if at most 20
    differences are not 0. Otherwise random flips are drawn, and the observed pattern counts as one of them (Phipson &
    Smyth, 2010), so that the p-value is never 0.

    Parameters
    ----------
    first, second : array or tensor
        Figures of the two runs, of the same shape, such as [episodes].
    seed : int or Generator
        For the random flips.
    n_flips : int
        How many random flips are drawn.
    level : float
        Confidence level of the interval.
    """
    a, b = to_numpy(first), to_numpy(second)
    if a.shape != b.shape:
        raise InputError(f"the two runs must have the same episodes; the shapes are {a.shape} and {b.shape}")
    if n_flips < 1:
        raise InputError(f"n_flips must be at least 1; it is {n_flips}")
    d = finite_array("values of the first run", a.ravel(), 1) - finite_array("values of the second run", b.ravel(), 1)
    moved = d[d != 0]
    exact = len(moved) <= _MOST_ENUMERATED
    sums = _all_sums(moved) if exact else _random_sums(moved, np.random.default_rng(seed), n_flips)
    # Accuracies are multiples of 1 / queries: equal sums must count as equal despite rounding.
    as_far = np.abs(sums) >= abs(moved.sum()) - 1e-9 * np.abs(moved).sum()
    p_value = as_far.mean() if exact else (1 + as_far.sum()) / (1 + n_flips)
    return PairedComparison(mean_interval(d, level), float(p_value), len(d), exact)


def _all_sums(d: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sums of d under every sign pattern that keeps the first sign; the others mirror them."""
    sums: npt.NDArray[np.float64] = d[:1].sum(keepdims=True)
    for x in d[1:]:
        sums = np.concatenate([sums + x, sums - x])
    return sums


def _random_sums(d: npt.NDArray[np.float64], rng: np.random.Generator, n_flips: int) -> npt.NDArray[np.float64]:
    """Sums of d under random signs."""
    rows = max(1, _CHUNK // len(d))
    kept = [
        rng.integers(2, size=(min(rows, n_flips - done), len(d)), dtype=np.int8) @ d for done in range(0, n_flips, rows)
    ]
    sums: npt.NDArray[np.float64] = 2 * np.concatenate(kept) - d.sum()
    return sums
