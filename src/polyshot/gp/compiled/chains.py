"""The one-vs-each conditional, compiled, one chain after another. Formulas and names are those of one_vs_each.py.

R_c is computed only on the rows that do not belong to class c, because its other rows are zero.
"""

from typing import no_type_check

import numpy as np
from numba import njit

from polyshot.gp.compiled.small_matrices import (
    OPTIONS,
    cholesky_lower,
    class_block,
    dot4,
    invert_lower,
    rows_with_sites,
    site_factor,
    solve_lower,
    solve_upper,
    subtract_rows,
    times,
)


@no_type_check
@njit(**OPTIONS)
def class_blocks_chains(K, omega, first, last, R, log_det):
    """Fill R[i] and log_det[i] (posterior.class_blocks) for the chains i in first..last-1.

    K [B, N, N], omega [B * M, C, N], R [B * M, C, N, N], log_det [B * M]. Returns the same as `solve_chains`.
    """
    n_chains = omega.shape[0] // K.shape[0]
    C, N = omega.shape[1], omega.shape[2]
    N4 = (N + 3) // 4 * 4
    H, L, V = np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N4, N4))
    rows, root = np.empty(N, np.int64), np.empty(N)
    for chain in range(first, last):
        log_det[chain] = 0.0
        for c in range(C):
            n = rows_with_sites(omega[chain, c], rows, root)
            if not class_block(K[chain // n_chains], root, rows, n, H, L, V, R[chain, c]):
                return chain
            for i in range(n):
                log_det[chain] += 2.0 * np.log(L[i, i])
    return -1


@no_type_check
@njit(**OPTIONS)
def solve_class_chains(K, omega, r, first, last, out):
    """Fill out[i] with (K + 1 / omega_c)^-1 r_c, class by class, for the chains i in first..last-1.

    K [B, N, N], omega, r and out [B * M, C, N]. Returns the same as `solve_chains`.
    """
    n_chains = omega.shape[0] // K.shape[0]
    C, N = omega.shape[1], omega.shape[2]
    N4 = (N + 3) // 4 * 4
    H, L = np.zeros((N4, N4)), np.zeros((N4, N4))
    rows, root, x = np.empty(N, np.int64), np.empty(N), np.empty(N)
    for chain in range(first, last):
        for c in range(C):
            n = rows_with_sites(omega[chain, c], rows, root)
            if not site_factor(K[chain // n_chains], root, rows, n, H, L):
                return chain
            for i in range(n):
                x[i] = root[i] * r[chain, c, rows[i]]
            solve_lower(L, x, n)
            solve_upper(L, x, n)
            out[chain, c] = 0.0
            for i in range(n):
                out[chain, c, rows[i]] = root[i] * x[i]
    return -1


@no_type_check
@njit(**OPTIONS)
def _contrast_variances(K, y, R, L1, L2, Z, JT, variance):
    """Fill variance [C, N] with the posterior variance of psi = f_y - f_c of every example (factors: star.Star)."""
    C, N = R.shape[0], K.shape[0]
    N4 = R.shape[1]
    W1, W2, ZT = np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N4, N4))
    Rk, centre, v = np.zeros((N, N4)), np.zeros((N, N4)), np.empty((C, N))
    first, second = np.zeros((C, N, N4)), np.zeros((C, N, N4))
    invert_lower(L1, W1, N)
    invert_lower(L2, W2, N)
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
                Rk[i, k], Rk[i, k + 1], Rk[i, k + 2], Rk[i, k + 3] = dot4(Rc, k, K, i, N)
            v[c, i] = K[i, i]
            for k in range(N):
                v[c, i] -= K[i, k] * Rk[i, k]
            for k in range(0, N, 4):
                F1[i, k], F1[i, k + 1], F1[i, k + 2], F1[i, k + 3] = dot4(W1, k, Rk, i, min(k + 4, N))
            for k in range(0, N, 4):
                x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3] = dot4(ZT, k, F1, i, N)
            for k in range(N):
                x[i, k] = (centre[i, k] if y[k] == c else 0.0) - x[i, k]
            for k in range(0, N, 4):
                F2[i, k], F2[i, k + 1], F2[i, k + 2], F2[i, k + 3] = dot4(W2, k, x, i, min(k + 4, N))
    for c in range(C):
        for i in range(N):
            total = v[c, i] + v[y[i], i]
            for k in range(N):
                total += (first[c, i, k] - first[y[i], i, k]) ** 2 - (second[c, i, k] - second[y[i], i, k]) ** 2
            variance[c, i] = max(total, 0.0) if y[i] != c else 0.0


@no_type_check
@njit(**OPTIONS)
def new_workspace(C, N):
    """The arrays that every chain in turn is computed in; rows are padded to whole blocks of four."""
    N4 = (N + 3) // 4 * 4
    square = np.zeros((7, N4, N4))
    return (
        np.zeros((C, N4, N4)),
        square,
        np.zeros((N, N4)),
        np.empty(N, np.int64),
        np.empty((5, N)),
        np.empty((4, C, N)),
    )


@no_type_check
@njit(**OPTIONS)
def factor_chain(K, y, workspace):
    """Compute one chain's factors from omega in the workspace; return log |I + K A^T Omega A|, or nan if not PD."""
    R, square, JT, rows, vectors, tables = workspace
    H, L, V, C1, L1, Z = square[0], square[1], square[2], square[3], square[4], square[5]
    root, p, w = vectors[0], vectors[2], tables[0]
    C, N = w.shape
    C1[:] = 0.0
    log_det = 0.0
    for c in range(C):
        n = rows_with_sites(w[c], rows, root)
        Rc = R[c]
        if not class_block(K, root, rows, n, H, L, V, Rc):
            return np.nan
        for i in range(n):
            log_det += 2.0 * np.log(L[i, i])
        C1 += Rc
        for j in range(N):  # J[:, j] = R_{y_j} K[:, j]
            if y[j] == c:
                for i in range(0, N, 4):
                    JT[j, i], JT[j, i + 1], JT[j, i + 2], JT[j, i + 3] = dot4(Rc, i, K, j, N)
    if not cholesky_lower(C1, L1, N):
        return np.nan
    for i in range(N):  # Z = L1^-1 (I - J)
        for j in range(N):
            Z[i, j] = -JT[j, i]
        Z[i, i] += 1.0
        subtract_rows(L1[i], Z, i, Z[i], N)
        inverse = 1.0 / L1[i, i]
        for j in range(N):
            Z[i, j] *= inverse
    for i in range(N):  # C2 = same-class entries of K - K J, plus Z^T Z; in H
        for j in range(i + 1):
            H[i, j] = 0.0
            if y[i] == y[j]:
                total = K[i, j]
                for k in range(N):
                    total -= K[i, k] * JT[j, k]
                H[i, j] = total
    for i in range(N):
        for k in range(N):
            p[k] = -Z[k, i]
        subtract_rows(p, Z, N, H[i], i + 1)
    if not cholesky_lower(H, L, N):
        return np.nan
    for i in range(N):
        log_det += 2.0 * np.log(L1[i, i]) + 2.0 * np.log(L[i, i])
    return log_det


@no_type_check
@njit(**OPTIONS)
def solve_chain(K, y, workspace):
    """Compute a from r, both in the workspace, by the chain's factors."""
    R, square, _, _, vectors, tables = workspace
    L, L1, Z = square[1], square[4], square[5]
    t, p, g, Kx = vectors[1], vectors[2], vectors[3], vectors[4]
    r, h, a = tables[1], tables[2], tables[3]
    C, N = r.shape
    t[:] = 0.0
    for c in range(C):  # h = R r, t = C1^-1 sum_c R_c r_c
        times(R[c], r[c], h[c], N)
        for i in range(N):
            t[i] += h[c, i]
    solve_lower(L1, t, N)
    solve_upper(L1, t, N)
    for c in range(C):  # h = R (r - t)
        times(R[c], t, a[c], N)
        for i in range(N):
            h[c, i] -= a[c, i]
    for i in range(N):  # p = C2^-1 (t + own(K h))
        total = t[i]
        for k in range(N):
            total += K[i, k] * h[y[i], k]
        p[i] = total
    solve_lower(L, p, N)
    solve_upper(L, p, N)
    times(Z, p, g, N)  # g = L1^-T Z p
    solve_upper(L1, g, N)
    for c in range(C):  # a_c = x_c - h_c - R_c (K x_c + g), x_c = p on the examples of class c
        Kx[:] = g
        for j in range(N):
            if y[j] == c:
                for i in range(N):
                    Kx[i] += K[j, i] * p[j]
        times(R[c], Kx, a[c], N)
        for i in range(N):
            a[c, i] = (p[i] if y[i] == c else 0.0) - h[c, i] - a[c, i]


@no_type_check
@njit(**OPTIONS)
def solve_chains(K, y, omega, r, first, last, a, log_det, variance):
    """Fill a[:, i] and log_det[i] for the chains i in first..last-1; return the first chain that is not PD, or -1.

    K [B, N, N], y [B, N], omega [B * M, N, C], r and a [S, B * M, N, C] for S right-hand sides, log_det [B * M], all
    float64 (y int64) and contiguous. `variance` is empty, or has omega's shape and receives the posterior variances
    of psi.
    """
    n_chains, N, C = omega.shape[0] // K.shape[0], omega.shape[1], omega.shape[2]
    workspace = new_workspace(C, N)
    tables = workspace[5]
    spread = np.empty((C if variance.shape[0] > 0 else 0, N))
    for chain in range(first, last):
        Kb, yb = K[chain // n_chains], y[chain // n_chains]
        tables[0] = omega[chain].T
        log_det[chain] = factor_chain(Kb, yb, workspace)
        if np.isnan(log_det[chain]):
            return chain
        if variance.shape[0] > 0:
            R, square, JT, _, _, _ = workspace
            _contrast_variances(Kb, yb, R, square[4], square[1], square[5], JT, spread)
            variance[chain] = spread.T
        for s in range(r.shape[0]):
            tables[1] = r[s, chain].T
            solve_chain(Kb, yb, workspace)
            a[s, chain] = tables[3].T
    return -1


@no_type_check
@njit(**OPTIONS)
def correct_chains(K, y, omega, kappa, f0, noise, first, last, f):
    """Fill f[i], the posterior draws that the prior draws f0[i] become, for the chains i in first..last-1.

    omega, kappa, f0, noise, f [B * M, N, C]; the rest as in `solve_chains`.
    """
    n_chains, N, C = omega.shape[0] // K.shape[0], omega.shape[1], omega.shape[2]
    workspace = new_workspace(C, N)
    tables = workspace[5]
    Ka = np.empty(N)
    for chain in range(first, last):
        Kb, yb = K[chain // n_chains], y[chain // n_chains]
        for i in range(N):  # r = kappa / omega - psi - noise / sqrt(omega)
            for c in range(C):
                w = omega[chain, i, c]
                tables[0, c, i] = w
                tables[1, c, i] = 0.0
                if w > 0.0:
                    psi = f0[chain, i, yb[i]] - f0[chain, i, c]
                    tables[1, c, i] = kappa[chain, i, c] / w - psi - noise[chain, i, c] / np.sqrt(w)
        if np.isnan(factor_chain(Kb, yb, workspace)):
            return chain
        solve_chain(Kb, yb, workspace)
        for c in range(C):
            times(Kb, tables[3, c], Ka, N)
            for i in range(N):
                f[chain, i, c] = f0[chain, i, c] + Ka[i]
    return -1
