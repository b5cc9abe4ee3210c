"""Expectations over tiny GP posteriors by Gauss-Hermite quadrature in all dimensions of u, f = root u."""

import numpy as np
import torch

from paper.studies.softmax_posterior import log_likelihood


class Exact:
    """The posterior of a likelihood as weighted points."""

    def __init__(self, likelihood, root, y, n_way, n_nodes):
        size = root.shape[1] * n_way
        nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
        grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), -1).reshape(-1, root.shape[1], n_way)
        log_w = sum(np.meshgrid(*[np.log(weights / weights.sum())] * size, indexing="ij")).ravel()
        self.u = torch.from_numpy(grid)
        self.f = root @ self.u
        joint = torch.from_numpy(log_w) + log_likelihood(likelihood, self.f, y)
        self.log_evidence = float(torch.logsumexp(joint, 0))
        self.p = (joint - self.log_evidence).exp()

    def mean(self, values):
        return torch.tensordot(self.p, values, 1)
