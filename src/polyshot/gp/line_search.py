"""Maximisation of an expensive function of one number."""

from collections.abc import Callable
from functools import cache


def climb(function: Callable[[int], float], reach: int) -> float:
    """Find a local maximum by steps of 1 from 0, refined by a parabola.

    Parameters
    ----------
    function : callable
        What to maximise; called at most once per integer.
    reach : int
        The largest distance from 0.

    Returns
    -------
    float
        The vertex of the parabola through the best integer and its two neighbours.
    """
    value = cache(function)
    best = 0
    while abs(best) < reach and (better := max((best, best - 1, best + 1), key=value)) != best:
        best = better
    low, middle, high = (value(best + d) for d in (-1, 0, 1))
    curvature = low - 2 * middle + high
    return best + min(0.5, max(-0.5, (low - high) / (2 * curvature))) if curvature < 0 else float(best)
