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
    psi, variance, y, w, kappa, part, keep_w, p, s, smallest, first, last, new_w, new_kappa, improper, scale, residual
):
    """New sites of the examples first..last-1, the log scale of their old sites, and their largest residual.

    psi, variance and kappa are [N, C]. The cavity is everything but the share part_i of the site itself. Where the
    shared precision is too large for it, the cavity is a wide one and `improper` is true. The formulas are those of
    `match_moments` and `log_scales`. The residual is how many standard deviations the full change of a site alone
    would move its psi. With `keep_w` the precision stays, and only kappa is matched.
    """
    C = psi.shape[1]
    at_once = max(1, min(last - first, 512 // C))  # examples
    mean, spread, log_z = np.empty(at_once * C), np.empty(at_once * C), np.empty(at_once * C)
    by_mean, by_variance = np.empty(at_once * C), np.empty(at_once * C)
    for start in range(first, last, at_once):
        end = min(start + at_once, last)
        for i in range(start, end):
            improper[i] = False
            for c in range(C):
                precision = 1.0 / variance[i, c]
                left = precision - part[i] * w[i]
                if left < 1e-3 * precision:
                    left = 1e-3 * precision
                    improper[i] = improper[i] or c != y[i]
                k = (i - start) * C + c
                spread[k] = 1.0 / left
                mean[k] = (psi[i, c] * precision - part[i] * kappa[i, c]) * spread[k]
        log_expected_sigmoids(mean, spread, p, s, 0, (end - start) * C, log_z, by_mean, by_variance)
        for i in range(start, end):
            own, offset, total = y[i], (i - start) * C, 0.0
            for c in range(C):
                k = offset + c
                if c != own:
                    curvature = max(by_mean[k] * by_mean[k] - 2.0 * by_variance[k], smallest)
                    total += curvature / max(1.0 - spread[k] * curvature, 1e-4)
            shared = w[i] if keep_w else total / (C - 1)
            new_w[i] = shared
            log_scale, largest = 0.0, 0.0
            for c in range(C):
                if c == own:
                    new_kappa[i, c] = 0.0
                    continue
                m, v, slope, old = mean[offset + c], spread[offset + c], by_mean[offset + c], kappa[i, c]
                new_kappa[i, c] = slope + shared * (m + v * slope)
                quadratic = (old * old * v + 2.0 * old * m - w[i] * m * m) / (2.0 * (1.0 + w[i] * v))
                log_scale += log_z[offset + c] - quadratic + 0.5 * math.log1p(w[i] * v)
                change = part[i] * (new_kappa[i, c] - old - psi[i, c] * (shared - w[i]))
                shift = change / (1.0 / v + part[i] * shared)
                largest = max(largest, abs(shift) / math.sqrt(variance[i, c]))
            scale[i] = log_scale
            residual[i] = largest
    return -1
