"""The inner loops, compiled. `solve_chains` is `one_vs_each.Conditional.solve` for one chain
after another, without the cost of a library call for every small matrix.

Same formulas, same names (see one_vs_each.py, where they are derived); R_c is worked out on the rows that
are not of class c, because its other rows are zero. Releases the GIL, so that threads share the chains.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import no_type_check

import numpy as np
import torch
from numba import njit

from polyshot.errors import InputError

# No `nnan`: a NaN pivot must be seen.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_OPTIONS = {"nogil": True, "cache": True, "fastmath": _FAST, "error_model": "numpy"}


def in_threads(job: Callable[[int, int], int], n_items: int) -> None:
    """Run `job(first, last)` over 0..n_items-1 in as many threads as torch may use; it returns -1 if all went well."""
    n_threads = max(1, min(torch.get_num_threads(), n_items))
    bounds = [n_items * k // n_threads for k in range(n_threads + 1)]
    others = [_pool(n_threads).submit(job, bounds[k], bounds[k + 1]) for k in range(1, n_threads)]
    results = [job(bounds[0], bounds[1]), *(other.result() for other in others)]
    if max(results) >= 0:
        raise InputError("the kernel matrix is not positive semi-definite to working precision")


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, n_threads - 1), thread_name_prefix="polyshot")


@no_type_check
@njit(**_OPTIONS)
def _dot4(A, i, B, j, first, last):
    """Inner products of rows i..i+3 of A with row j of B over the columns first..last-1."""
    t0 = t1 = t2 = t3 = 0.0
    start = np.uint64(first)  # an unsigned index cannot wrap around, which lets the compiler vectorise
    for step in range(last - first):
        k = start + np.uint64(step)
        b = B[j, k]
        t0 += A[i, k] * b
        t1 += A[i + 1, k] * b
        t2 += A[i + 2, k] * b
        t3 += A[i + 3, k] * b
    return t0, t1, t2, t3


@no_type_check
@njit(**_OPTIONS)
def _subtract_rows(factors, A, n, out, width):
    """out[:width] -= sum over the first n rows k of factors[k] A[k, :width]."""
    for k in range(0, n - 3, 4):
        b0, b1, b2, b3 = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        for j in range(width):
            out[j] -= b0 * A[k, j] + b1 * A[k + 1, j] + b2 * A[k + 2, j] + b3 * A[k + 3, j]
    for k in range(n // 4 * 4, n):
        b0 = factors[k]
        for j in range(width):
            out[j] -= b0 * A[k, j]


@no_type_check
@njit(**_OPTIONS)
def _cholesky(H, L, n):
    """Lower Cholesky factor of the leading n x n block of H (lower half read) into L; False if not PD.

    Works on four rows at a time: rows past n, up to a multiple of four, must exist and are overwritten.
    """
    for i in range(0, n, 4):
        for j in range(i):
            t0, t1, t2, t3 = _dot4(L, i, L, j, 0, j)
            inverse = 1.0 / L[j, j]
            L[i, j] = (H[i, j] - t0) * inverse
            L[i + 1, j] = (H[i + 1, j] - t1) * inverse
            L[i + 2, j] = (H[i + 2, j] - t2) * inverse
            L[i + 3, j] = (H[i + 3, j] - t3) * inverse
        for row in range(i, min(i + 4, n)):
            for j in range(i, row + 1):
                total = H[row, j]
                for k in range(j):
                    total -= L[row, k] * L[j, k]
                if row > j:
                    L[row, j] = total / L[j, j]
                elif total > 0.0:
                    L[row, row] = np.sqrt(total)
                else:
                    return False
    return True


@no_type_check
@njit(**_OPTIONS)
def _solve_lower(L, x, n):
    """L^-1 x in place."""
    for i in range(n):
        total = x[i]
        for k in range(i):
            total -= L[i, k] * x[k]
        x[i] = total / L[i, i]


@no_type_check
@njit(**_OPTIONS)
def _solve_upper(L, x, n):
    """L^-T x in place."""
    for i in range(n - 1, -1, -1):
        x[i] /= L[i, i]
        for k in range(i):
            x[k] -= L[i, k] * x[i]


@no_type_check
@njit(**_OPTIONS)
def _class_block(K, root, rows, n, H, L, V, R):
    """R_c = w^(1/2) (I + w^(1/2) K w^(1/2))^-1 w^(1/2) on `rows`, where `root` is w^(1/2); zero elsewhere."""
    n4 = (n + 3) // 4 * 4
    for i in range(n4):  # padded with the identity to whole blocks of four
        if i < n:
            for j in range(i + 1):
                H[i, j] = root[i] * root[j] * K[rows[i], rows[j]]
            H[i, i] += 1.0
        else:
            H[i, : i + 1] = 0.0
            H[i, i] = 1.0
    if not _cholesky(H, L, n4):
        return False
    for i in range(0, n4, 4):  # V = L^-T by rows, so that every inner loop runs along memory
        for row in range(i, i + 4):
            for k in range(i, i + 4):
                total = 1.0 if k == row else 0.0
                for j in range(row, k):
                    total -= L[k, j] * V[row, j]
                V[row, k] = total / L[k, k] if k >= row else 0.0
        for k in range(i + 4, n4):
            t0, t1, t2, t3 = _dot4(V, i, L, k, i, k)
            inverse = -1.0 / L[k, k]
            V[i, k] = t0 * inverse
            V[i + 1, k] = t1 * inverse
            V[i + 2, k] = t2 * inverse
            V[i + 3, k] = t3 * inverse
    for i in range(0, n4, 4):  # H^-1 = V V^T
        for j in range(i + 4):
            H[i, j], H[i + 1, j], H[i + 2, j], H[i + 3, j] = _dot4(V, i, V, j, i, n4)
    R[:] = 0.0
    for i in range(n):
        for j in range(i + 1):
            value = root[i] * root[j] * H[i, j]
            R[rows[i], rows[j]] = value
            R[rows[j], rows[i]] = value
    return True


@no_type_check
@njit(**_OPTIONS)
def _rows_with_sites(w, rows, root):
    """Fill in the rows where w > 0, and w^(1/2) there; returns how many there are."""
    n = 0
    for i in range(w.shape[0]):
        if w[i] > 0.0:
            rows[n] = i
            root[n] = np.sqrt(w[i])
            n += 1
    return n


@no_type_check
@njit(**_OPTIONS)
def class_blocks_chains(K, omega, first, last, R, log_det):
    """Fill R[i] and log_det[i] (posterior.class_blocks) for the chains i in first..last-1.

    K [B, N, N], omega [B * M, C, N], R [B * M, C, N, N], log_det [B * M]; returns as `solve_chains`.
    """
    n_chains = omega.shape[0] // K.shape[0]
    C, N = omega.shape[1], omega.shape[2]
    N4 = (N + 3) // 4 * 4
    H, L, V = np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N4, N4))
    rows, root = np.empty(N, np.int64), np.empty(N)
    for chain in range(first, last):
        log_det[chain] = 0.0
        for c in range(C):
            n = _rows_with_sites(omega[chain, c], rows, root)
            if not _class_block(K[chain // n_chains], root, rows, n, H, L, V, R[chain, c]):
                return chain
            for i in range(n):
                log_det[chain] += 2.0 * np.log(L[i, i])
    return -1


@no_type_check
@njit(**_OPTIONS)
def _invert_lower(L, W, n):
    """W = L^-1, lower triangular."""
    for k in range(n):
        for j in range(k):
            total = 0.0
            for i in range(j, k):
                total += L[k, i] * W[i, j]
            W[k, j] = -total / L[k, k]
        W[k, k] = 1.0 / L[k, k]


@no_type_check
@njit(**_OPTIONS)
def _contrast_variances(K, y, R, L1, L2, Z, JT, variance):
    """Posterior variance of psi = f_y - f_c for every example, into variance [C, N] (one_vs_each._Star.project)."""
    C, N = R.shape[0], K.shape[0]
    N4 = R.shape[1]
    W1, W2, ZT = np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N4, N4))
    Rk, centre, v = np.zeros((N, N4)), np.zeros((N, N4)), np.empty((C, N))
    first, second = np.zeros((C, N, N4)), np.zeros((C, N, N4))
    _invert_lower(L1, W1, N)
    _invert_lower(L2, W2, N)
    for i in range(N):
        for j in range(N):
            ZT[j, i] = Z[i, j]
            total = K[i, j]
            for k in range(N):
                total -= JT[j, k] * K[i, k]
            centre[i, j] = total
    x = np.zeros((N, N4))
    for c in range(C):
        Rc, F1, F2 = R[c], first[c], second[c]
        for i in range(N):
            for k in range(0, N, 4):
                Rk[i, k], Rk[i, k + 1], Rk[i, k + 2], Rk[i, k + 3] = _dot4(Rc, k, K, i, 0, N)
            v[c, i] = K[i, i]
            for k in range(N):
                v[c, i] -= K[i, k] * Rk[i, k]
            for k in range(0, N, 4):
                F1[i, k], F1[i, k + 1], F1[i, k + 2], F1[i, k + 3] = _dot4(W1, k, Rk, i, 0, min(k + 4, N))
            for k in range(0, N, 4):
                x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3] = _dot4(ZT, k, F1, i, 0, N)
            for k in range(N):
                x[i, k] = (centre[i, k] if y[k] == c else 0.0) - x[i, k]
            for k in range(0, N, 4):
                F2[i, k], F2[i, k + 1], F2[i, k + 2], F2[i, k + 3] = _dot4(W2, k, x, i, 0, min(k + 4, N))
    for c in range(C):
        for i in range(N):
            total = v[c, i] + v[y[i], i]
            for k in range(N):
                total += (first[c, i, k] - first[y[i], i, k]) ** 2 - (second[c, i, k] - second[y[i], i, k]) ** 2
            variance[c, i] = max(total, 0.0) if y[i] != c else 0.0


@no_type_check
@njit(**_OPTIONS)
def solve_chains(K, y, omega, r, first, last, a, variance):
    """Fill a[i] for the chains i in first..last-1; returns the first chain that is not PD, or -1.

    K [B, N, N], y [B, N], omega, r, a [B * M, C, N], all float64 (y int64) and contiguous. If `variance`, of the
    same shape, is not empty, it receives the posterior variances of psi.
    """
    n_chains = omega.shape[0] // K.shape[0]
    C, N = omega.shape[1], omega.shape[2]
    N4 = (N + 3) // 4 * 4
    R = np.zeros((C, N4, N4))
    H, L, V = np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N4, N4))
    C1, L1, Z, JT = np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N, N4))
    rows, root = np.empty(N, np.int64), np.empty(N)
    t, p, g = np.empty(N), np.empty(N), np.empty(N)
    h, Kx = np.empty((C, N)), np.empty(N)
    for chain in range(first, last):
        Kb, yb, w, rc = K[chain // n_chains], y[chain // n_chains], omega[chain], r[chain]
        C1[:] = 0.0
        for c in range(C):
            n = _rows_with_sites(w[c], rows, root)
            Rc = R[c]
            if not _class_block(Kb, root, rows, n, H, L, V, Rc):
                return chain
            C1 += Rc
            for j in range(N):  # J[:, j] = R_{y_j} K[:, j]
                if yb[j] == c:
                    for i in range(0, N, 4):
                        JT[j, i], JT[j, i + 1], JT[j, i + 2], JT[j, i + 3] = _dot4(Rc, i, Kb, j, 0, N)
        if not _cholesky(C1, L1, N):
            return chain
        for i in range(N):  # Z = L1^-1 (I - J)
            for j in range(N):
                Z[i, j] = -JT[j, i]
            Z[i, i] += 1.0
            _subtract_rows(L1[i], Z, i, Z[i], N)
            for j in range(N):
                Z[i, j] /= L1[i, i]
        for i in range(N):  # C2 = same-class entries of K - K J, plus Z^T Z; in H
            for j in range(i + 1):
                H[i, j] = 0.0
                if yb[i] == yb[j]:
                    total = Kb[i, j]
                    for k in range(N):
                        total -= Kb[i, k] * JT[j, k]
                    H[i, j] = total
        for i in range(N):
            for k in range(N):
                p[k] = -Z[k, i]
            _subtract_rows(p, Z, N, H[i], i + 1)
        if not _cholesky(H, L, N):
            return chain
        if variance.shape[0] > 0:
            _contrast_variances(Kb, yb, R, L1, L, Z, JT, variance[chain])
        t[:] = 0.0
        for c in range(C):  # h = R r, t = C1^-1 sum_c R_c r_c
            for i in range(N):
                total = 0.0
                for k in range(N):
                    total += R[c, i, k] * rc[c, k]
                h[c, i] = total
                t[i] += total
        _solve_lower(L1, t, N)
        _solve_upper(L1, t, N)
        for c in range(C):  # h = R (r - t)
            for i in range(N):
                total = 0.0
                for k in range(N):
                    total += R[c, i, k] * t[k]
                h[c, i] -= total
        for i in range(N):  # p = C2^-1 (t + own(K h))
            total = t[i]
            for k in range(N):
                total += Kb[i, k] * h[yb[i], k]
            p[i] = total
        _solve_lower(L, p, N)
        _solve_upper(L, p, N)
        for i in range(N):  # g = L1^-T Z p
            total = 0.0
            for k in range(N):
                total += Z[i, k] * p[k]
            g[i] = total
        _solve_upper(L1, g, N)
        for c in range(C):  # a_c = x_c - h_c - R_c (K x_c + g), x_c = p on the examples of class c
            for i in range(N):
                Kx[i] = g[i]
            for j in range(N):
                if yb[j] == c:
                    for i in range(N):
                        Kx[i] += Kb[j, i] * p[j]
            for i in range(N):
                total = 0.0
                for k in range(N):
                    total += R[c, i, k] * Kx[k]
                a[chain, c, i] = (p[i] if yb[i] == c else 0.0) - h[c, i] - total
    return -1


@no_type_check
@njit(**_OPTIONS)
def log_expected_sigmoids(mean, variance, p, s, first, last, value, slope_m, slope_v):
    """log E[sigmoid(x)], x ~ N(mean, variance), and its two derivatives, for the entries first..last-1.

    By sigmoid(x) = sum_k p_k Phi(s_k x); far in the tail after exponential tilting, by
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
@njit(**_OPTIONS)
def mean_one_vs_each(mean, root, noise, n_query, first, last, out):
    """E[prod_c' sigmoid(f_c - f_c') / sum] over f = mean + root z, for the rows first..last-1 of out [rows, C].

    mean [rows, C], root [rows, C, C] lower triangular; row i uses the points noise[i // n_query] [S, C].
    """
    C = mean.shape[1]
    e, product = np.empty(C), np.empty(C)
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
                # 60 below the largest is a probability below 1e-26: no need to tell it from zero
                e[c] = math.exp(max(e[c] - largest, -60.0))
                product[c] = 1.0
            for i in range(C):
                for j in range(i):
                    share = 1.0 / (e[i] + e[j])
                    product[i] *= e[i] * share
                    product[j] *= e[j] * share
            total = 0.0
            for c in range(C):
                total += product[c]
            for c in range(C):
                out[row, c] += product[c] / (total * points.shape[0])
    return -1
