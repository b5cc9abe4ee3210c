"""The two symmetric systems of the tied posterior (tied_propagation.py), compiled: one pass over the memory each.

Matrices are read and written in their lower halves, because LAPACK needs no more.
"""

from typing import no_type_check

import numpy as np
from numba import njit

from polyshot.gp.compiled.small_matrices import OPTIONS

_TILE = 64  # a tile of a matrix and its mirror image stay in the cache together


@no_type_check
@njit(**OPTIONS)
def first_system(K, root, H):
    """H = I + w^(1/2) K w^(1/2) for root = w^(1/2)."""
    for i in range(len(root)):
        for j in range(i + 1):
            H[i, j] = root[i] * root[j] * K[i, j]
        H[i, i] += 1.0


@no_type_check
@njit(**OPTIONS)
def second_system(inverse, y, n_way, H):
    """H = I - w^(-1/2) Gamma w^(-1/2), from the inverse of the first system."""
    share = 1.0 / n_way
    for i in range(len(y)):
        for j in range(i + 1):
            H[i, j] = inverse[i, j] * (share - 1.0 if y[i] == y[j] else share)
        H[i, i] += 1.0


@no_type_check
@njit(**OPTIONS)
def scaled_back(P, S, root):
    """P and S in place from the inverses of the two systems, whole."""
    n = len(root)
    for i0 in range(0, n, _TILE):
        i1 = min(i0 + _TILE, n)
        for j0 in range(0, i1, _TILE):
            for i in range(i0, i1):
                for j in range(j0, min(j0 + _TILE, i + 1)):
                    outer = root[i] * root[j]
                    P[i, j] *= outer
                    S[i, j] /= outer
            for j in range(j0, min(j0 + _TILE, i1)):
                for i in range(max(i0, j + 1), i1):
                    P[j, i] = P[i, j]
                    S[j, i] = S[i, j]


@no_type_check
@njit(**OPTIONS)
def posterior_means(K, P, S, y, w, kappa, a, f):
    """Fill a and f = K a [N, C] (the weights and means of the posterior); return b^T f for b = A^T kappa."""
    n, n_way = kappa.shape
    share = 1.0 / n_way
    b, x, own = np.empty((n, n_way)), np.empty((n, n_way)), np.empty(n)
    for i in range(n):
        total = 0.0
        for c in range(n_way):
            total += kappa[i, c]
        for c in range(n_way):
            b[i, c] = (total if c == y[i] else 0.0) - kappa[i, c]
            x[i, c] = b[i, c] / w[i]
    np.dot(P, x, a)
    for i in range(n):
        own[i] = b[i, y[i]] - a[i, y[i]]
    coupled = np.dot(S, own)
    for i in range(n):
        for c in range(n_way):
            x[i, c] -= ((1.0 if c == y[i] else 0.0) - share) * coupled[i]
    np.dot(P, x, a)
    np.dot(K, a, f)
    product = 0.0
    for i in range(n):
        for c in range(n_way):
            product += b[i, c] * f[i, c]
    return product


@no_type_check
@njit(**OPTIONS)
def contrast_variances(K, P, S, y, w, variance):
    """Fill variance [N, C] with that of psi = f_y - f_c of every example, class by class to save memory."""
    n, n_way = variance.shape
    starts = np.zeros(n_way + 1, np.int64)
    for i in range(n):
        starts[y[i] + 1] += 1
    largest = starts.max()
    starts = starts.cumsum()
    order = np.argsort(y, kind="mergesort")
    left, across = np.empty(n), np.zeros((n, n_way))
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += P[i, j] * K[i, j]
        left[i] = total / w[i]  # of K - K P K, because K P = 1 - P / w
    by_column, by_row, of_class = np.empty((largest, n)), np.empty((largest, n)), np.empty((largest, n))
    product, block = np.empty((largest, n)), np.empty(largest * largest)
    for c in range(n_way):
        members = order[starts[c] : starts[c + 1]]
        m = len(members)
        square = block[: m * m].reshape((m, m))
        for k in range(m):
            i = members[k]
            for j in range(n):
                by_column[k, j] = -P[i, j] / w[j]  # column i of K P
                by_row[k, j] = -P[i, j] / w[i]  # row i
                of_class[k, j] = S[i, j]
            by_column[k, i] += 1.0
            by_row[k, i] += 1.0
            for j in range(m):
                square[k, j] = S[i, members[j]]
        variance[:, c] = 0.0
        if m == 0:
            continue
        np.dot(square, by_column[:m], product[:m])
        for k in range(m):
            for j in range(n):
                variance[j, c] -= product[k, j] * by_column[k, j]
            for j in range(m):
                square[k, j] = by_row[k, members[j]]
        np.dot(square, of_class[:m], product[:m])
        for k in range(m):
            for j in range(n):
                across[members[k], y[j]] += product[k, j] * by_row[k, j]
    for i in range(n):
        own = 2.0 * left[i] + variance[i, y[i]]
        for c in range(n_way):
            variance[i, c] = own + variance[i, c] + 2.0 * across[i, c] if c != y[i] else 0.0
