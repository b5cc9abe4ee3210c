"""A maximum of a function of one number that is dear to evaluate."""

from collections.abc import Callable
from functools import cache


def climb(function: Callable[[int], float], reach: int) -> float:
    """From 0 in steps of 1 to a maximum at most `reach` away, and to the top of the parabola through its neighbours."""
    value = cache(function)
    best = 0
    while abs(best) < reach and (better := max((best, best - 1, best + 1), key=value)) != best:
        best = better
    low, middle, high = (value(best + d) for d in (-1, 0, 1))
    curvature = low - 2 * middle + high
    return best + min(0.5, max(-0.5, (low - high) / (2 * curvature))) if curvature < 0 else float(best)
