"""How tests compare: numbers to a tolerance of their own size, samples to exact expectations."""

import numpy as np
from scipy import stats

# A statistic of an unbiased sampler lies beyond 4.5 standard errors with probability 7e-6, so a test of ten of
# them raises a false alarm less than once in 10,000 seeds; the seeds are also fixed.
STANDARD_ERRORS = 4.5
FALSE_ALARM = 1e-4


def assert_close(actual, expected, relative, floor=0.0):
    """Largest deviation within `relative` of the largest entry of `expected` (or of `floor`, if that is more)."""
    actual, expected = np.asarray(actual, float), np.asarray(expected, float)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    size = max(np.abs(expected).max(initial=0.0), floor)
    deviation = np.abs(actual - expected).max(initial=0.0)
    assert deviation <= relative * size, f"off by {deviation:.3g} where the largest entry is {size:.3g}"


def assert_mean(samples, expected, slack=0.0):
    """Mean of independent samples [S, ...] equals `expected` up to sampling error (and an error `slack` of it)."""
    samples = np.asarray(samples, float)
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    deviation = np.abs(samples.mean(0) - expected)
    worst = np.max((deviation - slack) / np.maximum(error, 1e-300))
    assert worst <= STANDARD_ERRORS, f"{worst:.1f} standard errors off: {samples.mean(0)}, expected {expected}"


def assert_uniform(ranks, n_ranks):
    """Ranks in 0..n_ranks-1 are uniform by the chi-square test."""
    p = stats.chisquare(np.bincount(np.asarray(ranks).ravel(), minlength=n_ranks)).pvalue
    assert p > FALSE_ALARM, f"ranks are not uniform: p = {p:.2g}"


def central_difference(function, step):
    """Derivative of function(t) at t = 0 by a fourth-order rule."""
    return (8 * (function(step) - function(-step)) - (function(2 * step) - function(-2 * step))) / (12 * step)
