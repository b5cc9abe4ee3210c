"""The contract of a GP classifier with auxiliary variables, and log p(Y | X, sites) with its closed-form gradient.

A model says how its auxiliary variables are drawn given f, and what f is given them. Sampling (gibbs.py), prediction
(probabilities.py) and training (objectives.py) are written once, for all models.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.compiled.chains import solve_class_chains
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.likelihoods import Likelihood
from polyshot.gp.models.posterior import Conditional, Logits, Sites, full_mean, residual
from polyshot.gp.shapes import (
    ChainMatrices,
    Generators,
    KernelMatrix,
    Labels,
    Mean,
    PerChain,
    QueryCovariances,
    QueryVariances,
    SiteArray,
)

CHUNK_BYTES = 2**26
"""Largest size of the class blocks of the chains that are computed together."""


class Marginal(NamedTuple):
    """log p(Y | X, sites); its derivative a in the mean; twice its derivative in K, sum_c a_c a_c^T - G_cc."""

    value: PerChain
    a: SiteArray
    slope: ChainMatrices


class GPModel(ABC):
    """A likelihood over the class logits together with its conditionally Gaussian form.

    A new model sets `likelihood` and writes `draw_sites` and `condition`.

    Attributes
    ----------
    likelihood : Likelihood
        The likelihood, which also owns the predictive rules.
    """

    likelihood: Likelihood

    def contrast(self, f: SiteArray, y: Labels) -> SiteArray:
        """Psi = A f, the argument of the sites: the logits themselves unless a model says otherwise."""
        return f

    @abstractmethod
    def draw_sites(self, f: SiteArray, y: Labels, generators: Generators) -> Sites:
        """Draw the auxiliary variables given f, with one generator per task of the flattened batch."""

    @abstractmethod
    def condition(self, K: KernelMatrix, y: Labels, sites: Sites, mean: Mean = 0.0) -> Conditional:
        """The Gaussian p(f | X, Y, sites), differentiable in K and in the mean [*batch, N, C]."""

    def query(
        self,
        K: KernelMatrix,
        y: Labels,
        sites: Sites,
        K_star: QueryCovariances,
        k_star_star: QueryVariances,
        mean: Mean = 0.0,
    ) -> Logits:
        """The posterior of the query logits, differentiable in every covariance and in the mean of all logits."""
        return self.condition(K, y, sites, mean).query(K_star, k_star_star, mean)

    def solve(self, K: KernelMatrix, y: Labels, omega: SiteArray, r: SiteArray) -> SiteArray:
        """A^T B^-1 r for one right-hand side per chain; here for models with A the identity, by a compiled loop."""
        n, n_way = omega.shape[-2:]
        K_flat = as_array(K.reshape(-1, n, n))
        omega_flat, r_flat = (as_array(x.mT.reshape(-1, n_way, n)) for x in (omega, r))
        a = np.empty_like(r_flat)
        in_threads(
            lambda first, last: solve_class_chains(K_flat, omega_flat, r_flat, first, last, a), len(a), n_way * n**3
        )
        return as_tensor(a).to(K.device).reshape(*omega.shape[:-2], n_way, n).mT

    def correct(self, K: KernelMatrix, y: Labels, sites: Sites, f0: SiteArray, noise: SiteArray) -> SiteArray:
        """Turn draws f0 of the prior into draws of p(f | X, Y, sites) (Hoffman & Ribak 1991; Appendix A)."""
        r = residual(sites, self.contrast(f0, y), noise)
        return f0 + K[..., None, :, :] @ self.solve(K, y, sites.omega, r)

    def with_gradient(self, sites: Sites, y: Labels) -> Sites:
        """Return the sites as functions of the model's own learned parameters; most models have none."""
        return sites

    def log_marginal(
        self, K: KernelMatrix, y: Labels, sites: Sites, mean: Mean = 0.0, probes: SiteArray | None = None
    ) -> PerChain:
        """log p(Y | X, sites) of each chain, with its closed-form gradient in K and in the mean.

        Its integral over the prior of the auxiliary variables is p(Y | X): no factor that depends on them is dropped.

        Parameters
        ----------
        K, y, sites, mean
            The task and its sites, as in `condition`.
        probes : Tensor [*batch, M, N, C], optional
            Draws v ~ N(0, B), one per chain. They turn the gradient in K into an unbiased estimate: b = A^T B^-1 v has
            covariance G, so b b^T replaces G, which is most of the work.
        """
        K = K.double()
        mean = full_mean(mean, (*K.shape[:-1], sites.omega.shape[-1]), K)
        result: Tensor = _LogMarginal.apply(K, mean, self, y, sites, probes)  # type: ignore[no-untyped-call]
        return result

    def marginal(
        self, K: KernelMatrix, y: Labels, sites: Sites, mean: Mean, probes: SiteArray | None = None
    ) -> Marginal:
        """The log-marginal and its derivatives, exact or by probes (`log_marginal`)."""
        conditional = self.condition(K, y, sites, mean)
        if probes is None:
            G = conditional.block_sum()
        else:
            b = self.solve(K, y, sites.omega, probes)
            G = b @ b.mT
        a = conditional.a
        return Marginal(conditional.log_marginal, a, a @ a.mT - G)


def chain_chunks(sites: Sites, n_query: int = 0) -> list[Sites]:
    """Split the sites into groups of chains, so that the memory per group stays bounded.

    Parameters
    ----------
    sites : Sites
        Sites [*batch, M, N, C].
    n_query : int
        The number of queries per task that are predicted with them.
    """
    m, n, c = sites.omega.shape[-3:]
    tasks = sites.omega.numel() // max(m * n * c, 1)
    size = max(1, int(CHUNK_BYTES / (8 * max(tasks, 1) * c * n * (n + n_query))))
    pairs = zip(torch.split(sites.omega, size, -3), torch.split(sites.kappa, size, -3), strict=True)
    return [Sites(omega, kappa) for omega, kappa in pairs]


class _LogMarginal(torch.autograd.Function):
    """d/dK is half the sum over classes of a_c a_c^T - G_cc, and d/dmean is a; no factorisation is differentiated."""

    @staticmethod
    def forward(
        ctx: Any, K: Tensor, mean: Tensor, model: GPModel, y: Tensor, sites: Sites, probes: Tensor | None
    ) -> Tensor:
        values, weights, slopes, done = [], [], [], 0
        for chunk in chain_chunks(sites):
            size = chunk.omega.shape[-3]
            part = None if probes is None else probes[..., done : done + size, :, :]
            done += size
            if ctx.needs_input_grad[0]:
                value, a, slope = model.marginal(K, y, chunk, mean, part)
                slopes.append(slope / 2)
            else:
                conditional = model.condition(K, y, chunk, mean)
                value, a = conditional.log_marginal, conditional.a
            values.append(value)
            weights.append(a)
        ctx.save_for_backward(torch.cat(slopes, -3) if slopes else None, torch.cat(weights, -3))
        return torch.cat(values, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None, None, None, None]:
        slopes, weights = ctx.saved_tensors
        factor = grad[..., None, None]
        in_K = None if slopes is None else (factor * slopes).sum(-3)
        return in_K, (factor * weights).sum(-3), None, None, None, None
