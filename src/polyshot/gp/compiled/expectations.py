"""Expectations of sigmoids under Gaussians, compiled."""

import math
from typing import Any, no_type_check

import numpy as np
from numba import njit
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from polyshot.gp.compiled.small_matrices import OPTIONS

BLOCK = 64
# (1 + 2 x) exp(x^2) erfc(x) as a polynomial in t = (x - 3.75) / (x + 3.75) for all x >= 0, to 4e-15 (Shepherd &
# Laframboise 1981), and the series of exp for |x| <= log(2) / 2.
ERFCX_CENTRE = 3.75


def _scaled_erfcx(t: Any) -> Any:
    x = ERFCX_CENTRE * (1 + t) / (1 - t)
    return (1 + 2 * x) * erfcx(x)


ERFCX = tuple(chebyshev.cheb2poly(chebyshev.chebinterpolate(_scaled_erfcx, 20)).tolist())
TAYLOR = tuple(1 / math.factorial(n) for n in range(14))


@no_type_check
@njit(**OPTIONS)
def _exp(x):
    """exp(x) for -700 <= x <= 0, without a branch or a call, so that compilers make vectors of it."""
    k = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10  # x - k log 2, in two parts
    power = TAYLOR[13]
    for n in range(12, -1, -1):
        power = power * r + TAYLOR[n]
    return power * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@no_type_check
@njit(**OPTIONS)
def _scaled_erfcx_at(t):
    value = ERFCX[20]
    for n in range(19, -1, -1):
        value = value * t + ERFCX[n]
    return value


@no_type_check
@njit(**OPTIONS)
def _tail(u):
    """exp(-u^2 / 2) and the standard normal's mass beyond |u|."""
    x = abs(u) * 0.7071067811865476
    power = _exp(max(-x * x, -700.0))
    t = (x - ERFCX_CENTRE) / (x + ERFCX_CENTRE)
    return power, 0.5 * power * _scaled_erfcx_at(t) / (1.0 + 2.0 * x)


@no_type_check
@njit(**OPTIONS)
def log_expected_sigmoids(mean, variance, p, s, first, last, value, slope_m, slope_v):
    """log E[sigmoid(x)], x ~ N(mean, variance), and its two derivatives, for the entries first..last-1.

    Uses sigmoid(x) = sum_k p_k Phi(s_k x); far in the tail, exponential tilting first:
    E[sigmoid(x)] = exp(m + v / 2) E[sigmoid(-x - v)]. The derivatives are left out if `slope_m` is empty.

    Here and below the entries are computed in blocks of one size, the last filled up, so that an entry has the same
    bits wherever it stands.
    """
    m, v, total = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    by_m, by_v = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(first, last, BLOCK):
        n = min(BLOCK, last - start)
        for j in range(BLOCK):
            i = start + min(j, n - 1)
            v[j] = variance[i]
            m[j] = mean[i] if mean[i] + v[j] >= 0.0 else -(mean[i] + v[j])
            total[j] = by_m[j] = by_v[j] = 0.0
        for k in range(p.shape[0]):
            part, width = p[k], 1.0 / (s[k] * s[k])
            for j in range(BLOCK):
                precision = 1.0 / (v[j] + width)
                root = np.sqrt(precision)
                u = m[j] * root
                power, beyond = _tail(u)
                total[j] += part * (1.0 - beyond if u > 0.0 else beyond)
                density = part * root * 0.3989422804014327 * power
                by_m[j] += density
                by_v[j] += density * precision
        for j in range(n):
            i = start + j
            tail = mean[i] + variance[i] < 0.0
            probability = max(total[j], 1e-300)
            value[i] = math.log(probability) + (mean[i] + 0.5 * variance[i] if tail else 0.0)
            if slope_m.shape[0] > 0:
                slope = by_m[j] / probability
                by_variance = by_v[j] * (-0.5 * m[j] / probability)
                slope_m[i] = 1.0 - slope if tail else slope
                slope_v[i] = 0.5 - slope + by_variance if tail else by_variance
    return -1


@no_type_check
@njit(**OPTIONS)
def expected_log_sigmoids(mean, variance, p, s, first, last, value, slope_m, slope_v):
    """E[log sigmoid(x)], x ~ N(mean, variance), and its two derivatives; arguments as in `log_expected_sigmoids`.

    -log sigmoid(x) = E[max(0, e - x)] for logistic e, and e - x is a mixture of normals. The derivatives are
    E[sigmoid(-x)] and -E[sigmoid'(x)] / 2.
    """
    m, v, total = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    by_m, by_v = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(first, last, BLOCK):
        n = min(BLOCK, last - start)
        for j in range(BLOCK):
            i = start + min(j, n - 1)
            m[j], v[j] = mean[i], variance[i]
            total[j] = by_m[j] = by_v[j] = 0.0
        for k in range(p.shape[0]):
            part, width = p[k], 1.0 / (s[k] * s[k])
            for j in range(BLOCK):
                spread = v[j] + width
                root = np.sqrt(1.0 / spread)
                u = m[j] * root
                power, beyond = _tail(u)
                above = part * (beyond if u > 0.0 else 1.0 - beyond)
                density = part * root * 0.3989422804014327 * power
                total[j] += m[j] * above - spread * density
                by_m[j] += above
                by_v[j] -= 0.5 * density
        for j in range(n):
            value[start + j] = total[j]
            if slope_m.shape[0] > 0:
                slope_m[start + j] = by_m[j]
                slope_v[start + j] = by_v[j]
    return -1


@no_type_check
@njit(**OPTIONS)
def mean_one_vs_each(mean, root, noise, n_query, first, last, out):
    """E[prod_c' sigmoid(f_c - f_c') / sum] over f = mean + root z, for the rows first..last-1 of out [rows, C].

    mean [rows, C], root [rows, C, C] lower triangular; row i uses the points noise[i // n_query] [S, C].
    A product of more than 256 sigmoids may underflow, so its logarithm is moved into `log` every 256 factors.
    """
    C = mean.shape[1]
    e, product, log = np.empty(C), np.empty(C), np.empty(C)
    for row in range(first, last):
        points = noise[row // n_query]
        out[row] = 0.0
        for s in range(points.shape[0]):
            largest = -np.inf
            for c in range(C):
                total = mean[row, c]
                for k in range(c + 1):
                    total += root[row, c, k] * points[s, k]
                e[c] = total
                largest = max(largest, total)
            for c in range(C):
                # 60 below the largest is a probability below 1e-26: as good as zero
                e[c] = math.exp(max(e[c] - largest, -60.0))
                product[c] = 1.0
                log[c] = 0.0
            for i in range(C):
                for j in range(i):
                    share = 1.0 / (e[i] + e[j])
                    product[i] *= e[i] * share
                    product[j] *= e[j] * share
                    if j % 256 == 255:
                        log[i] += math.log(max(product[i], 1e-300))
                        product[i] = 1.0
                if i % 256 == 255:
                    for c in range(C):
                        log[c] += math.log(max(product[c], 1e-300))
                        product[c] = 1.0
            if C > 256:
                largest = -np.inf
                for c in range(C):
                    log[c] += math.log(max(product[c], 1e-300))
                    largest = max(largest, log[c])
                for c in range(C):
                    product[c] = math.exp(log[c] - largest)
            total = 0.0
            for c in range(C):
                total += product[c]
            for c in range(C):
                out[row, c] += product[c] / (total * points.shape[0])
    return -1
