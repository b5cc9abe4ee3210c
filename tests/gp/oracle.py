"""The textbook: what the paper writes, as dense numpy matrices, with nothing clever.

Vectors are stacked class by class, f = (f_1^1 .. f_N^1, f_1^2 .. f_N^C), as in Section 4.2; arrays [N, C] go in and
out. K is never inverted, so that it may be singular.
"""

from functools import cached_property

import mpmath
import numpy as np
from torch import Tensor


def ove_matrix(y: np.ndarray, n_way: int) -> np.ndarray:
    """OVE-MATRIX(Y) of Section 4.3: block (c, d) is diag(Y_d) - [c = d] I."""
    Y = np.eye(n_way)[y]
    identity = np.eye(len(y))
    return np.block([[np.diag(Y[:, d]) - (c == d) * identity for d in range(n_way)] for c in range(n_way)])


def vec(x: np.ndarray) -> np.ndarray:
    return x.T.ravel()


def unvec(v: np.ndarray, n_way: int) -> np.ndarray:
    return v.reshape(n_way, -1).T


def block_diagonal(K: np.ndarray, n_way: int) -> np.ndarray:
    return np.kron(np.eye(n_way), K)


class Dense:
    """The Gaussian p(f | X, Y, sites) with sites exp(kappa psi - omega psi^2 / 2) / 2^b on psi = A f."""

    def __init__(self, K, y, omega, kappa, *, mean=0.0, b=None, coupled=True):
        self.n, self.n_way = omega.shape
        there = vec(omega) > 0
        A = ove_matrix(y, self.n_way) if coupled else np.eye(omega.size)
        self.A = A[there]
        self.omega, self.kappa = vec(omega)[there], vec(kappa)[there]
        self.b = 2 * self.kappa if b is None else vec(b)[there]
        self.K = block_diagonal(K, self.n_way)
        self.mu = vec(np.broadcast_to(mean, omega.shape))
        self.B = self.A @ self.K @ self.A.T + np.diag(1 / self.omega)

    @cached_property
    def a(self) -> np.ndarray:
        """A^T B^-1 (Omega^-1 kappa - A mu)."""
        return self.A.T @ np.linalg.solve(self.B, self.kappa / self.omega - self.A @ self.mu)

    @cached_property
    def G(self) -> np.ndarray:
        return self.A.T @ np.linalg.solve(self.B, self.A)

    @property
    def mean(self) -> np.ndarray:
        return unvec(self.mu + self.K @ self.a, self.n_way)

    @property
    def covariance(self) -> np.ndarray:
        return self.K - self.K @ self.G @ self.K

    @property
    def log_normal(self) -> float:
        """log N(Omega^-1 kappa | A mu, A K A^T + Omega^-1)."""
        r = self.kappa / self.omega - self.A @ self.mu
        log_det = np.linalg.slogdet(2 * np.pi * self.B)[1]
        return float(-(r @ np.linalg.solve(self.B, r) + log_det) / 2)

    @property
    def log_marginal(self) -> float:
        """log p(Y | X, sites): the normal density, and what turns it back into exp(kappa psi - omega psi^2/2) / 2^b."""
        constants = np.log(2 * np.pi / self.omega) / 2 + self.kappa**2 / (2 * self.omega) - self.b * np.log(2)
        return self.log_normal + float(constants.sum())

    @property
    def gradient_in_K(self) -> np.ndarray:
        """Derivative of log_marginal in the block that all classes share."""
        slope = (np.outer(self.a, self.a) - self.G) / 2
        blocks = slope.reshape(self.n_way, self.n, self.n_way, self.n)
        return np.einsum("cicj->ij", blocks)

    def query(self, K_star: np.ndarray, k_star_star: np.ndarray, mean=0.0) -> tuple[np.ndarray, np.ndarray]:
        """Section 4.4, one query after another: means [Q, C], covariances [Q, C, C]."""
        means, covariances = [], []
        for k, k_ss in zip(K_star, k_star_star, strict=True):
            Kq = np.kron(np.eye(self.n_way), k[:, None])
            means.append(mean + Kq.T @ self.a)
            covariances.append(k_ss * np.eye(self.n_way) - Kq.T @ self.G @ Kq)
        return np.array(means), np.array(covariances)


def paper_conditional(K, y, omega, n_way):
    """Equation (f_conditional) as it stands: K inverted, the comparison of a class with itself kept; zero mean."""
    A = ove_matrix(y, n_way)
    precision = np.linalg.inv(block_diagonal(K, n_way)) + A.T @ np.diag(vec(omega)) @ A
    covariance = np.linalg.inv(precision)
    return covariance @ A.T @ np.full(A.shape[0], 0.5), covariance


def precise_conditional(K, y, omega, K_star, k_star_star, digits=60):
    """log_marginal, query means and covariances of the one-vs-each GP, zero mean, in `digits` digits."""
    dense = Dense(K, y, omega, np.where(omega > 0, 0.5, 0.0))
    with mpmath.workdps(digits):
        A, K_mp = mpmath.matrix(dense.A.tolist()), mpmath.matrix(dense.K.tolist())
        omega_mp = [mpmath.mpf(w) for w in dense.omega]
        z = mpmath.matrix([mpmath.mpf(0.5) / w for w in omega_mp])
        B = A * K_mp * A.T + mpmath.diag([1 / w for w in omega_mp])
        inverse = mpmath.inverse(B)
        log_marginal = -((z.T * inverse * z)[0] + mpmath.log(mpmath.det(B))) / 2
        log_marginal += sum(-mpmath.log(w) / 2 + 1 / (8 * w) - mpmath.log(2) for w in omega_mp)
        means, covariances = [], []
        for k, k_ss in zip(K_star, k_star_star, strict=True):
            AKq = A * mpmath.matrix(np.kron(np.eye(dense.n_way), k[:, None]).tolist())
            means.append([float(x) for x in AKq.T * inverse * z])
            reduced = k_ss * mpmath.eye(dense.n_way) - AKq.T * inverse * AKq
            covariances.append(np.array(reduced.tolist(), dtype=float).reshape(dense.n_way, dense.n_way))
        return float(log_marginal), np.array(means), np.array(covariances)


def array(x: Tensor) -> np.ndarray:
    return x.detach().double().numpy()
