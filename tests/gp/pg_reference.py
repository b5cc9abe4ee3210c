"""Exact moments and distribution function of PG(b, c), independent of any sampler."""

import mpmath
import numpy as np
from scipy.special import gammaln, log_ndtr


def mean(b, c):
    """b tanh(c/2) / (2 c), b / 4 at zero."""
    with mpmath.workdps(50):
        c = mpmath.mpf(c)
        return float(b * (mpmath.tanh(c / 2) / (2 * c) if c else mpmath.mpf(1) / 4))


def variance(b, c):
    """b (sinh c - c) / (4 c^3 cosh^2(c/2)), b / 24 at zero."""
    with mpmath.workdps(50):
        c = mpmath.mpf(c)
        if not c:
            return b / 24
        return float(b * (mpmath.sinh(c) - c) / (4 * c**3 * mpmath.cosh(c / 2) ** 2))


def cdf(x, b, c):
    """The alternating series of Polson et al. (2013), Section 2.3, integrated term by term.

    Each term of the tilted density is that of the time at which a Brownian motion with drift c hits a = n + b/2,
    whose distribution function is known, so that
        F(x) = (1 + e^-c)^b sum_n (-1)^n binom(n+b-1, n) e^(-n c) P(hit a before x).
    """
    x, c = np.asarray(x, float), abs(c)
    total = np.zeros_like(x)
    for n in range(200):
        a = n + b / 2
        log_weight = gammaln(n + b) - gammaln(n + 1) - gammaln(b) - n * c + b * np.log1p(np.exp(-c))
        log_hit = np.logaddexp(log_ndtr((c * x - a) / np.sqrt(x)), 2 * a * c + log_ndtr(-(c * x + a) / np.sqrt(x)))
        term = np.exp(log_weight + log_hit)
        total += (-1) ** n * term
        if n > b and term.max() < 1e-15:
            return total
    raise AssertionError("the series has not converged")
