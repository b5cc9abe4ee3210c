"""Moment matching of tied expectation propagation, compiled: one pass over the examples, few numbers in memory."""

import math
from typing import no_type_check

import numpy as np
from numba import njit

from polyshot.gp.compiled.expectations import log_expected_sigmoids
from polyshot.gp.compiled.small_matrices import OPTIONS


@no_type_check
@njit(**OPTIONS)
def match_tied_moments(
    psi, variance, y, w, kappa, part, p, s, smallest, first, last, new_w, new_kappa, improper, scale, residual
):
    """New sites of the examples first..last-1, the log scale of their old sites, and their largest residual.

    psi, variance and kappa are [N, C]. The cavity is everything but the share part_i of the site itself. Where the
    shared precision is too large for it, the cavity is a wide one and `improper` is true. The formulas are those of
    `match_moments` and `log_scales`. The residual is how many standard deviations the full change of a site alone
    would move its psi.
    """
    C = psi.shape[1]
    mean, spread = np.empty(C), np.empty(C)
    log_z, by_mean, by_variance = np.empty(C), np.empty(C), np.empty(C)
    for i in range(first, last):
        improper[i] = False
        for c in range(C):
            precision = 1.0 / variance[i, c]
            left = precision - part[i] * w[i]
            if left < 1e-3 * precision:
                left = 1e-3 * precision
                improper[i] = improper[i] or c != y[i]
            spread[c] = 1.0 / left
            mean[c] = (psi[i, c] * precision - part[i] * kappa[i, c]) * spread[c]
        log_expected_sigmoids(mean, spread, p, s, 0, C, log_z, by_mean, by_variance)
        total = 0.0
        for c in range(C):
            if c != y[i]:
                curvature = max(by_mean[c] * by_mean[c] - 2.0 * by_variance[c], smallest)
                total += curvature / max(1.0 - spread[c] * curvature, 1e-4)
        shared = total / (C - 1)
        new_w[i] = shared
        log_scale, largest = 0.0, 0.0
        for c in range(C):
            if c == y[i]:
                new_kappa[i, c] = 0.0
                continue
            m, v, k = mean[c], spread[c], kappa[i, c]
            new_kappa[i, c] = by_mean[c] + shared * (m + v * by_mean[c])
            quadratic = (k * k * v + 2.0 * k * m - w[i] * m * m) / (2.0 * (1.0 + w[i] * v))
            log_scale += log_z[c] - quadratic + 0.5 * math.log1p(w[i] * v)
            change = part[i] * (new_kappa[i, c] - k - psi[i, c] * (shared - w[i]))
            shift = change / (1.0 / v + part[i] * shared)
            largest = max(largest, abs(shift) / math.sqrt(variance[i, c]))
        scale[i] = log_scale
        residual[i] = largest
    return -1
