"""The contract of a GP classifier with auxiliary variables, and log p(Y | X, sites) with its closed gradient.

A model says how its auxiliary variables are drawn given f, and what f is given them. Sampling (gibbs.py),
prediction (predictive.py) and learning (objectives.py) are written once, for all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.compiled.chains import solve_class_chains
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.likelihoods import Likelihood
from polyshot.gp.models.posterior import Conditional, Logits, Mean, Sites, full_mean, residual

_CHUNK_BYTES = 2**26


class Marginal(NamedTuple):
    """log p(Y | X, sites), its derivative a in the mean, and twice its derivative in K, sum_c a_c a_c^T - G_cc."""

    value: Float[Tensor, "*batch m"]
    a: Float[Tensor, "*batch m n c"]
    slope: Float[Tensor, "*batch m n n"]


class GPModel(ABC):
    """A likelihood over the class logits together with its conditionally Gaussian form."""

    likelihood: Likelihood

    def contrast(self, f: Float[Tensor, "*batch m n c"], y: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch m n c"]:
        """Psi = A f, what the sites look at: the logits themselves unless a model says otherwise."""
        return f

    @abstractmethod
    def draw_sites(
        self,
        f: Float[Tensor, "*batch m n c"],
        y: Int[Tensor, "*batch n"],
        generators: Sequence[np.random.Generator],
    ) -> Sites:
        """Draw the auxiliary variables given f; one generator a task of the flattened batch."""

    @abstractmethod
    def condition(
        self, K: Float[Tensor, "*batch n n"], y: Int[Tensor, "*batch n"], sites: Sites, mean: Mean = 0.0
    ) -> Conditional:
        """The Gaussian p(f | X, Y, sites), differentiable in K and in the mean [*batch, N, C]."""

    def query(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        sites: Sites,
        K_star: Float[Tensor, "*batch q n"],
        k_star_star: Float[Tensor, "*batch q"],
        mean: Mean = 0.0,
    ) -> Logits:
        """The posterior of the query logits, differentiable in every covariance and in the mean of all logits."""
        return self.condition(K, y, sites, mean).query(K_star, k_star_star, mean)

    def solve(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        omega: Float[Tensor, "*batch m n c"],
        r: Float[Tensor, "*batch m n c"],
    ) -> Float[Tensor, "*batch m n c"]:
        """A^T B^-1 r for one right-hand side a chain; here for models with A the identity, by a compiled loop."""
        n, n_way = omega.shape[-2:]
        K_flat = as_array(K.reshape(-1, n, n))
        omega_flat, r_flat = (as_array(x.mT.reshape(-1, n_way, n)) for x in (omega, r))
        a = np.empty_like(r_flat)
        in_threads(
            lambda first, last: solve_class_chains(K_flat, omega_flat, r_flat, first, last, a), len(a), n_way * n**3
        )
        return as_tensor(a).to(K.device).reshape(*omega.shape[:-2], n_way, n).mT

    def correct(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        sites: Sites,
        f0: Float[Tensor, "*batch m n c"],
        noise: Float[Tensor, "*batch m n c"],
    ) -> Float[Tensor, "*batch m n c"]:
        """Turn draws f0 of the prior into draws of p(f | X, Y, sites) (Hoffman & Ribak 1991; Appendix A)."""
        r = residual(sites, self.contrast(f0, y), noise)
        return f0 + K[..., None, :, :] @ self.solve(K, y, sites.omega, r)

    def with_gradient(self, sites: Sites, y: Int[Tensor, "*batch n"]) -> Sites:
        """The sites as functions of the model's own learned parameters, of which most models have none."""
        return sites

    def log_marginal(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        sites: Sites,
        mean: Mean = 0.0,
        probes: Float[Tensor, "*batch m n c"] | None = None,
    ) -> Float[Tensor, "*batch m"]:
        """log p(Y | X, sites) of each chain, with its closed-form gradient in K and in the mean.

        Its integral over the prior of the auxiliary variables is p(Y | X) itself: no factor is dropped that
        depends on them. `probes` v ~ N(0, B), one a chain, make the gradient in K an unbiased estimate: b = A^T B^-1 v
        has covariance G, so that b b^T stands for G, which is most of the work.
        """
        K = K.double()
        mean = full_mean(mean, (*K.shape[:-1], sites.omega.shape[-1]), K)
        result: Tensor = _LogMarginal.apply(K, mean, self, y, sites, probes)  # type: ignore[no-untyped-call]
        return result

    def marginal(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        sites: Sites,
        mean: Mean,
        probes: Float[Tensor, "*batch m n c"] | None = None,
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
    """The sites in groups of chains, so that what one group needs for N examples and Q queries stays bounded."""
    m, n, c = sites.omega.shape[-3:]
    tasks = sites.omega.numel() // max(m * n * c, 1)
    size = max(1, int(_CHUNK_BYTES / (8 * max(tasks, 1) * c * n * (n + n_query))))
    pairs = zip(torch.split(sites.omega, size, -3), torch.split(sites.kappa, size, -3), strict=True)
    return [Sites(omega, kappa) for omega, kappa in pairs]


class _LogMarginal(torch.autograd.Function):
    """d/dK is half the sum over classes of a_c a_c^T - G_cc, d/dmean is a; nothing is differentiated through."""

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
