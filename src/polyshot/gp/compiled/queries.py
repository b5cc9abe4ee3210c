"""Query logits of the one-vs-each GP and their gradient, compiled, one chain after another.

With F = [F1, F2] (star.Star.factors) and D = diag(-1, 1) on its two halves, G_cc' = [c = c'] R_c + F_c D F_c'^T. For a
query k the mean is k a and the explained covariance k G_cc' k^T. From dG = -G dK G, the same dK for every class, and
gradients g_c in the mean and S_cc' in the explained covariance of each query, with h_c = sum over the queries of g_c k
and T_cc' of S_cc' k k^T, follow the gradients

    in k:  sum_c g_c a_c + 2 sum_cc' S_cc' G_cc' k
    in K:  -sum_c (G T G)_cc - sum_c e_c a_c^T,   e = G h
    in r:  omega (x_y - x_c),                     x = h - K e

T is only needed in products with F, so the cost is O(C N^2 (N + Q)), and no factorisation is differentiated.
"""

from typing import no_type_check

import numpy as np
from numba import njit

from polyshot.gp.compiled.chains import factor_chain, new_workspace, solve_chain
from polyshot.gp.compiled.small_matrices import OPTIONS, dot4, invert_lower, subtract_rows, times


@no_type_check
@njit(**OPTIONS)
def _factors(y, workspace, F):
    """Fill F_c [N4, 2 N4] = [R_c L1^-T, U_c L2^-T] from the chain's factors in the workspace."""
    R, square, JT, _, _, _ = workspace
    L2, L1, Z = square[1], square[4], square[5]
    C, N, N4 = R.shape[0], JT.shape[0], R.shape[1]
    W1, W2, ZT, U = np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N4, N4)), np.zeros((N4, N4))
    invert_lower(L1, W1, N)
    invert_lower(L2, W2, N)
    ZT[:N, :N] = Z[:N, :N].T
    for c in range(C):
        Fc = F[c]
        for i in range(N):
            for k in range(0, N, 4):
                Fc[i, k], Fc[i, k + 1], Fc[i, k + 2], Fc[i, k + 3] = dot4(W1, k, R[c], i, min(k + 4, N))
            for k in range(0, N, 4):
                U[i, k], U[i, k + 1], U[i, k + 2], U[i, k + 3] = dot4(ZT, k, Fc, i, N)
            for k in range(N):
                U[i, k] = -U[i, k] - (JT[k, i] if y[k] == c else 0.0)
            if y[i] == c:
                U[i, i] += 1.0
            for k in range(0, N, 4):
                m = N4 + k
                Fc[i, m], Fc[i, m + 1], Fc[i, m + 2], Fc[i, m + 3] = dot4(W2, k, U, i, min(k + 4, N))


@no_type_check
@njit(**OPTIONS)
def query_chains(K, y, omega, r, K_star, first, last, a, R, F, P, mean, explained):
    """Fill the outputs for the chains first..last-1; return the first chain that is not PD, or -1.

    K [B, N, N], y [B, N], omega and r [B * M, N, C], K_star [B, Q, N]; mean [B * M, Q, C], explained [B * M, Q, C, C].
    For the gradient a [B * M, C, N], R [B * M, C, N4, N4], F [B * M, C, N4, 2 N4] and P = K_star F [B * M, C, Q, 2 N4],
    with N4 the smallest multiple of four that is at least N. F must come filled with zeros; those beyond N stay.
    """
    n_chains, N, C = omega.shape[0] // K.shape[0], omega.shape[1], omega.shape[2]
    Q, N4 = K_star.shape[1], R.shape[2]
    workspace = new_workspace(C, N)
    tables = workspace[5]
    Rk = np.empty(N4)
    for chain in range(first, last):
        task = chain // n_chains
        k = K_star[task]
        tables[0], tables[1] = omega[chain].T, r[chain].T
        if np.isnan(factor_chain(K[task], y[task], workspace)):
            return chain
        solve_chain(K[task], y[task], workspace)
        a[chain] = tables[3]
        R[chain] = workspace[0]
        _factors(y[task], workspace, F[chain])
        minus = -k
        for c in range(C):
            for q in range(Q):
                Pq = P[chain, c, q]
                Pq[:] = 0.0
                subtract_rows(minus[q], F[chain, c], N, Pq, 2 * N4)
                total = own = 0.0
                for i in range(0, N, 4):
                    Rk[i], Rk[i + 1], Rk[i + 2], Rk[i + 3] = dot4(R[chain, c], i, k, q, N)
                for i in range(N):
                    total += k[q, i] * a[chain, c, i]
                    own += k[q, i] * Rk[i]
                mean[chain, q, c] = total
                explained[chain, q, c, c] = own
        for c in range(C):
            for d in range(c + 1):
                for q in range(Q):
                    one, other = P[chain, c, q], P[chain, d, q]
                    total = explained[chain, q, c, c] if c == d else 0.0
                    for j in range(N4):
                        total += one[N4 + j] * other[N4 + j] - one[j] * other[j]
                    explained[chain, q, c, d] = total
                    explained[chain, q, d, c] = total
    return -1


@no_type_check
@njit(**OPTIONS)
def query_slopes(K, y, omega, K_star, a, R, F, P, g, S, first, last, in_K, in_K_star, in_r):
    """Fill the gradients of the chains first..last-1, given those in mean (g) and in explained (S, symmetric).

    Shapes as in `query_chains`; in_K [B * M, N, N], in_K_star [B * M, Q, N], in_r [B * M, N, C].
    """
    n_chains, N, C = omega.shape[0] // K.shape[0], omega.shape[1], omega.shape[2]
    Q, N4, W = K_star.shape[1], R.shape[2], F.shape[3]
    UD, minus_PT, FTF = np.empty((C, Q, W)), np.empty((W, Q)), np.empty((W, W))
    T, TF, A, B = np.zeros((N4, N4)), np.zeros((N4, W)), np.zeros((N4, N4)), np.zeros((N4, W))
    weighted = np.empty(Q)
    for chain in range(first, last):
        task = chain // n_chains
        k, out = K_star[task], in_K[chain]
        minus_kT = np.ascontiguousarray(-k.T)
        _mean_slopes(K[task], y[task], omega[chain], k, a[chain], R[chain], F[chain], g[chain], out, in_r[chain])
        for q in range(Q):  # UD = S P D, class by class
            for c in range(C):
                UD[c, q] = 0.0
                for d in range(C):
                    s = S[chain, q, c, d]
                    for j in range(N4):
                        UD[c, q, j] -= s * P[chain, d, q, j]
                        UD[c, q, N4 + j] += s * P[chain, d, q, N4 + j]
        FTF[:] = 0.0  # D F^T T F D, its lower half
        for c in range(C):
            minus_PT[:] = -P[chain, c].T
            for j in range(W):
                subtract_rows(minus_PT[j], UD[c], Q, FTF[j], j + 1)
        for j in range(W):
            for i in range(j + 1):
                if j < N4:
                    FTF[j, i] = -FTF[j, i]
                FTF[i, j] = FTF[j, i]
        for q in range(Q):
            in_K_star[chain, q] = 0.0
            for c in range(C):
                for i in range(N):
                    in_K_star[chain, q, i] += g[chain, q, c] * a[chain, c, i]
        for c in range(C):
            Rc, Fc = R[chain, c], F[chain, c]
            for i in range(N):  # T_cc, and (T F D)_c
                for q in range(Q):
                    weighted[q] = S[chain, q, c, c] * minus_kT[i, q]
                T[i] = 0.0
                subtract_rows(weighted, k, Q, T[i], N)
                TF[i] = 0.0
                subtract_rows(minus_kT[i], UD[c], Q, TF[i], W)
            for j in range(N):  # A^T of A = T R / 2 + T F D F^T, and B = F D F^T T F D
                for i in range(0, N, 4):
                    t0, t1, t2, t3 = dot4(T, i, Rc, j, N)
                    s0, s1, s2, s3 = dot4(TF, i, Fc, j, W)
                    A[j, i], A[j, i + 1], A[j, i + 2], A[j, i + 3] = t0 / 2 + s0, t1 / 2 + s1, t2 / 2 + s2, t3 / 2 + s3
                for i in range(0, W, 4):
                    B[j, i], B[j, i + 1], B[j, i + 2], B[j, i + 3] = dot4(FTF, i, Fc, j, W)
            for j in range(N):  # R A + F B^T / 2 and its transpose
                for i in range(0, N, 4):
                    t = dot4(Rc, i, A, j, N)
                    s = dot4(Fc, i, B, j, W)
                    for m in range(min(4, N - i)):
                        part = t[m] + s[m] / 2
                        out[i + m, j] -= part
                        out[j, i + m] -= part
            for q in range(Q):
                s = 2 * S[chain, q, c, c]
                for i in range(0, N, 4):
                    t = dot4(Rc, i, k, q, N)
                    u = dot4(Fc, i, UD[c], q, W)
                    for m in range(min(4, N - i)):
                        in_K_star[chain, q, i + m] += s * t[m] + 2 * u[m]
    return -1


@no_type_check
@njit(**OPTIONS)
def _mean_slopes(K, y, omega, k, a, R, F, g, in_K, in_r):
    """The contribution of the means: in_K = -sum_c e_c a_c^T, made symmetric, and in_r."""
    C, N, N4 = R.shape[0], K.shape[0], R.shape[1]
    h, e, x = np.zeros((C, N4)), np.zeros((C, N4)), np.empty((C, N))
    t = np.zeros(F.shape[2])
    minus_gT = np.ascontiguousarray(-g.T)
    for c in range(C):
        subtract_rows(minus_gT[c], k, k.shape[0], h[c], N)
        subtract_rows(-h[c], F[c], N, t, t.shape[0])
    t[:N4] *= -1.0
    in_K[:] = 0.0
    for c in range(C):
        times(R[c], h[c], e[c], N)
        for i in range(N):
            for j in range(t.shape[0]):
                e[c, i] += F[c, i, j] * t[j]
        times(K, e[c], x[c], N)
        for i in range(N):
            x[c, i] = h[c, i] - x[c, i]
            for j in range(N):
                in_K[i, j] -= (e[c, i] * a[c, j] + a[c, i] * e[c, j]) / 2
    for i in range(N):
        for c in range(C):
            in_r[i, c] = omega[i, c] * (x[y[i], i] - x[c, i])
