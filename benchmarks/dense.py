"""The rival: the one-vs-each Gibbs step as in the paper's main text and public code.

Eq. (f_conditional): form the CN x CN conditional covariance by a Cholesky factorisation of its inverse, factorise it
again, draw; batched over the chains. In its favour, A^T Omega A is filled in by its pattern instead of multiplied out,
and K^-1 is computed once. The Pólya-Gamma sampler is ours.
"""

import numpy as np
import torch
from torch import Tensor

from polyshot.gp import sample_polya_gamma


class DenseGibbs:
    """f and omega are [M, C, N]; a small jitter makes K invertible, as in the public code."""

    def __init__(self, K: Tensor, y: Tensor, n_way: int, seed: int) -> None:
        self.n_way, self.n = n_way, len(y)
        identity = torch.eye(self.n, dtype=torch.float64)
        self.root = torch.linalg.cholesky(K + 1e-6 * K.diagonal().mean() * identity)
        self.precision = torch.block_diag(*[torch.cholesky_inverse(self.root)] * n_way)
        self.Y = (y == torch.arange(n_way)[:, None]).double()
        self.generator = np.random.default_rng(seed)
        # A^T kappa with kappa = 1/2: (C - 1) / 2 at the own class, -1/2 elsewhere
        self.pull = (self.Y * n_way - 1).flatten() / 2

    def prior(self, n_chains: int) -> Tensor:
        noise = torch.from_numpy(self.generator.standard_normal((n_chains, self.n_way, self.n, 1)))
        return (self.root @ noise).squeeze(-1)

    def draw_omega(self, f: Tensor) -> Tensor:
        psi = (f * self.Y).sum(-2, keepdim=True) - f
        return sample_polya_gamma(1, psi, self.generator) * (1 - self.Y)

    def draw_f(self, omega: Tensor) -> Tensor:
        m, c, n = omega.shape
        precision = self.precision.repeat(m, 1, 1).view(m, c, n, c, n)
        example, own = torch.arange(n), self.Y.argmax(0)
        classes = torch.arange(c)[:, None]
        precision[:, classes, example, classes, example] += omega
        precision[:, own, example, own, example] += omega.sum(-2)
        precision[:, classes, example, own, example] -= omega
        precision[:, own, example, classes, example] -= omega
        covariance = torch.cholesky_inverse(torch.linalg.cholesky(precision.view(m, c * n, c * n)))
        noise = torch.from_numpy(self.generator.standard_normal((m, c * n, 1)))
        draw = covariance @ self.pull[:, None] + torch.linalg.cholesky(covariance) @ noise
        return draw.view(m, c, n)

    def step(self, f: Tensor) -> Tensor:
        return self.draw_f(self.draw_omega(f))
