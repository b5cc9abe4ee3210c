"""Posterior expectations of tiny models by Gauss-Hermite quadrature over all dimensions at once."""

from itertools import product
from typing import NamedTuple

import numpy as np
from oracle import block_diagonal, ove_matrix, vec
from scipy.special import expit, log_expit, logsumexp


class Moments(NamedTuple):
    log_evidence: float
    mean: np.ndarray
    second: np.ndarray


def integrate(covariance, mean, log_likelihood, n_nodes) -> Moments:
    """Evidence and posterior moments of x ~ N(mean, covariance) under exp(log_likelihood(x))."""
    values, vectors = np.linalg.eigh(covariance)
    keep = values > 1e-12 * values[-1]
    root = vectors[:, keep] * np.sqrt(values[keep])
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    grid = np.stack(np.meshgrid(*[nodes] * root.shape[1], indexing="ij"), -1).reshape(-1, root.shape[1])
    log_weights = np.log(weights / weights.sum())
    log_w = sum(np.meshgrid(*[log_weights] * root.shape[1], indexing="ij")).ravel()
    x = mean + grid @ root.T
    log_joint = log_w + log_likelihood(x)
    log_evidence = logsumexp(log_joint)
    p = np.exp(log_joint - log_evidence)
    return Moments(float(log_evidence), p @ x, (p[:, None] * x).T @ x)


def one_vs_each_posterior(K, y, n_way, n_nodes, mean=0.0) -> Moments:
    """Of all logits f (stacked class by class): psi = A f by quadrature, then f given psi, which is Gaussian."""
    n = len(y)
    own = np.array([c == label for c, label in product(range(n_way), y)])
    A, Kf = ove_matrix(y, n_way)[~own], block_diagonal(K, n_way)
    mu = vec(np.broadcast_to(mean, (n, n_way)))
    psi = integrate(A @ Kf @ A.T, A @ mu, lambda x: log_expit(x).sum(-1), n_nodes)
    gain = Kf @ A.T @ np.linalg.pinv(A @ Kf @ A.T, rcond=1e-12, hermitian=True)
    centred = psi.second - np.outer(psi.mean, psi.mean)
    f_mean = mu + gain @ (psi.mean - A @ mu)
    covariance = Kf - gain @ A @ Kf + gain @ centred @ gain.T
    return Moments(psi.log_evidence, f_mean, covariance + np.outer(f_mean, f_mean))


def logistic_softmax_posterior(K, y, n_way, n_nodes, mean=0.0) -> Moments:
    """Of all logits f, stacked class by class."""
    n = len(y)
    mu = vec(np.broadcast_to(mean, (n, n_way)))

    def log_likelihood(x):
        f = x.reshape(-1, n_way, n)
        label = log_expit(f)[:, y, np.arange(n)]
        return (label - np.log(expit(f).sum(1))).sum(-1)

    return integrate(block_diagonal(K, n_way), mu, log_likelihood, n_nodes)
