"""Compiled algebra of small matrices: at N = 25 a library call per matrix costs more than the arithmetic.

Rows are processed four at a time, which compilers vectorise well. Arrays are padded to whole blocks of four.

numba's cache does not notice a change in another file: after an edit here, delete gp/compiled/__pycache__.
"""

from typing import no_type_check

import numpy as np
from numba import njit

# No `nnan`: a NaN pivot must be noticed. `forceinline`: otherwise a function from the cache would be called where a
# freshly compiled one is inlined, and the last bit of a result would depend on which of the two happened.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
OPTIONS = {"forceinline": True, "nogil": True, "cache": True, "fastmath": _FAST, "error_model": "numpy"}


@no_type_check
@njit(**OPTIONS)
def dot4(A, i, B, j, n):
    """Inner products of rows i..i+3 of A with row j of B over the first n columns."""
    t0 = t1 = t2 = t3 = 0.0
    for k in range(n):
        b = B[j, k]
        t0 += A[i, k] * b
        t1 += A[i + 1, k] * b
        t2 += A[i + 2, k] * b
        t3 += A[i + 3, k] * b
    return t0, t1, t2, t3


@no_type_check
@njit(**OPTIONS)
def subtract_rows(factors, A, n, out, width):
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
@njit(**OPTIONS)
def cholesky_lower(H, L, n):
    """Lower Cholesky factor of the leading n x n block of H (lower half read) into L; False if not PD.

    Processes four rows at a time: rows past n, up to a multiple of four, must exist and are overwritten.
    """
    for i in range(0, n, 4):
        for j in range(i):
            t0, t1, t2, t3 = dot4(L, i, L, j, j)
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
@njit(**OPTIONS)
def times(A, x, out, n):
    """out = A x over the leading n x n block."""
    for i in range(n):
        total = 0.0
        for k in range(n):
            total += A[i, k] * x[k]
        out[i] = total


@no_type_check
@njit(**OPTIONS)
def solve_lower(L, x, n):
    """L^-1 x in place."""
    for i in range(n):
        total = x[i]
        for k in range(i):
            total -= L[i, k] * x[k]
        x[i] = total / L[i, i]


@no_type_check
@njit(**OPTIONS)
def solve_upper(L, x, n):
    """L^-T x in place."""
    for i in range(n - 1, -1, -1):
        x[i] /= L[i, i]
        for k in range(i):
            x[k] -= L[i, k] * x[i]


@no_type_check
@njit(**OPTIONS)
def invert_lower(L, W, n):
    """W = L^-1, lower triangular."""
    for k in range(n):
        for j in range(k):
            total = 0.0
            for i in range(j, k):
                total += L[k, i] * W[i, j]
            W[k, j] = -total / L[k, k]
        W[k, k] = 1.0 / L[k, k]


@no_type_check
@njit(**OPTIONS)
def rows_with_sites(w, rows, root):
    """Fill `rows` with the indices where w > 0 and `root` with w^(1/2) there; return how many there are."""
    n = 0
    for i in range(w.shape[0]):
        if w[i] > 0.0:
            rows[n] = i
            root[n] = np.sqrt(w[i])
            n += 1
    return n


@no_type_check
@njit(**OPTIONS)
def site_factor(K, root, rows, n, H, L):
    """L with L L^T = H = I + w^(1/2) K w^(1/2) on `rows`, where `root` is w^(1/2); False if it is not PD."""
    n4 = (n + 3) // 4 * 4
    for i in range(n4):  # padded with the identity to whole blocks of four
        if i < n:
            for j in range(i + 1):
                H[i, j] = root[i] * root[j] * K[rows[i], rows[j]]
            H[i, i] += 1.0
        else:
            H[i, : i + 1] = 0.0
            H[i, i] = 1.0
    return cholesky_lower(H, L, n4)


@no_type_check
@njit(**OPTIONS)
def class_block(K, root, rows, n, H, L, V, R):
    """R_c = w^(1/2) H^-1 w^(1/2) on `rows`, zero elsewhere; root, H and L are those of `site_factor`."""
    n4 = (n + 3) // 4 * 4
    if not site_factor(K, root, rows, n, H, L):
        return False
    # V = L^-T by rows, so that every inner loop runs along memory. The loop starts at column zero, where V is zero,
    # because a loop that starts at i is not vectorised as well.
    for i in range(0, n4, 4):
        for k in range(i, i + 4):
            inverse = 1.0 / L[k, k]
            for row in range(i, i + 4):
                total = 1.0 if k == row else 0.0
                for j in range(row, k):
                    total -= L[k, j] * V[row, j]
                V[row, k] = total * inverse if k >= row else 0.0
        for k in range(i + 4, n4):
            t0, t1, t2, t3 = dot4(V, i, L, k, k)
            inverse = -1.0 / L[k, k]
            V[i, k] = t0 * inverse
            V[i + 1, k] = t1 * inverse
            V[i + 2, k] = t2 * inverse
            V[i + 3, k] = t3 * inverse
    for i in range(0, n4, 4):  # H^-1 = V V^T
        for j in range(i + 4):
            H[i, j], H[i + 1, j], H[i + 2, j], H[i + 3, j] = dot4(V, i, V, j, n4)
    R[:] = 0.0
    for i in range(n):
        for j in range(i + 1):
            value = root[i] * root[j] * H[i, j]
            R[rows[i], rows[j]] = value
            R[rows[j], rows[i]] = value
    return True
