"""Expectations of sigmoids under Gaussians, compiled."""

import math
from typing import no_type_check

import numpy as np
from numba import njit

from polyshot.gp.compiled.small_matrices import OPTIONS


@no_type_check
@njit(**OPTIONS)
def log_expected_sigmoids(mean, variance, p, s, first, last, value, slope_m, slope_v):
    """log E[sigmoid(x)], x ~ N(mean, variance), and its two derivatives, for the entries first..last-1.

    Uses sigmoid(x) = sum_k p_k Phi(s_k x); far in the tail, exponential tilting first:
    E[sigmoid(x)] = exp(m + v / 2) E[sigmoid(-x - v)]. The derivatives are left out if `slope_m` is empty.
    """
    for i in range(first, last):
        m, v = mean[i], variance[i]
        tail = m + v < 0.0
        if tail:
            m = -(m + v)
        total = by_m = by_v = 0.0
        for k in range(p.shape[0]):
            precision = 1.0 / (v + 1.0 / (s[k] * s[k]))
            root = np.sqrt(precision)
            u = m * root
            total += p[k] * 0.5 * math.erfc(-u * 0.7071067811865476)
            if slope_m.shape[0] > 0:
                density = p[k] * root * 0.3989422804014327 * math.exp(-0.5 * u * u)
                by_m += density
                by_v += density * precision
        total = max(total, 1e-300)
        value[i] = math.log(total) + (mean[i] + 0.5 * v if tail else 0.0)
        if slope_m.shape[0] > 0:
            by_m /= total
            by_v *= -0.5 * m / total
            slope_m[i] = 1.0 - by_m if tail else by_m
            slope_v[i] = 0.5 - by_m + by_v if tail else by_v
    return -1


@no_type_check
@njit(**OPTIONS)
def expected_log_sigmoids(mean, variance, p, s, first, last, value, slope_m, slope_v):
    """E[log sigmoid(x)], x ~ N(mean, variance), and its two derivatives; arguments as in `log_expected_sigmoids`.

    -log sigmoid(x) = E[max(0, e - x)] for logistic e, and e - x is a mixture of normals. The derivatives are
    E[sigmoid(-x)] and -E[sigmoid'(x)] / 2.
    """
    for i in range(first, last):
        m = mean[i]
        total = by_m = by_v = 0.0
        for k in range(p.shape[0]):
            deviation = np.sqrt(variance[i] + 1.0 / (s[k] * s[k]))
            u = m / deviation
            above = p[k] * 0.5 * math.erfc(u * 0.7071067811865476)
            density = p[k] * 0.3989422804014327 * math.exp(-0.5 * u * u)
            total += m * above - deviation * density
            by_m += above
            by_v -= 0.5 * density / deviation
        value[i] = total
        if slope_m.shape[0] > 0:
            slope_m[i] = by_m
            slope_v[i] = by_v
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
