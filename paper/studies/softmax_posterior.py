"""The posterior of a GP under any likelihood, without augmentation: Laplace, importance sampling, elliptical slices.

Everything is written for u with f = root u and u ~ N(0, I), so K may be singular: Iris has identical points with
different classes. For a kernel of scale one, the Gaussian at the mode (Rasmussen & Williams 2006, Section 3.5) is close
enough to the posterior to be the proposal of an unbiased estimate of p(Y | X) and the ellipse of the slice sampler.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp import Likelihood, as_tensor

_SMALLEST = 1e-10


class Estimate(NamedTuple):
    """A number and its Monte Carlo standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Laplace:
    """The Gaussian N(mode, (L L^T)^-1) over u [E C] at the mode of p(u | Y), with f = root u."""

    likelihood: Likelihood
    root: Float[Tensor, "n e"]
    y: Int[Tensor, "n"]
    mode: Float[Tensor, "e c"]
    L: Float[Tensor, "ec ec"]

    def draw(self, n_draws: int, generator: np.random.Generator) -> Float[Tensor, "s e c"]:
        """Draw u independently."""
        z = as_tensor(generator.standard_normal((self.L.shape[0], n_draws)))
        spread: Tensor = torch.linalg.solve_triangular(self.L.mT, z, upper=True)
        return self.mode + spread.mT.reshape(n_draws, *self.mode.shape)

    def log_weight(self, u: Float[Tensor, "s e c"]) -> Float[Tensor, "s"]:
        """Return log p(Y | f) p(u) / N(u | mode, (L L^T)^-1), the log importance weight."""
        z = (u - self.mode).flatten(1) @ self.L
        log_gaussian = self.L.diagonal().log().sum() - z.square().sum(-1) / 2
        return log_likelihood(self.likelihood, self.root @ u, self.y) - u.square().sum((-2, -1)) / 2 - log_gaussian


def log_likelihood(
    likelihood: Likelihood, f: Float[Tensor, "*draws n c"], y: Int[Tensor, "n"]
) -> Float[Tensor, "*draws"]:
    """Sum log L(f | y) over the examples."""
    return likelihood.log_likelihood(f, y.expand(f.shape[:-1])).sum(-1)


def kernel_root(K: Float[Tensor, "n n"]) -> Float[Tensor, "n e"]:
    """Return root with root root^T = K; directions in which K is zero are dropped."""
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(K)
    kept = values > _SMALLEST * values[-1]
    return vectors[:, kept] * values[kept].sqrt()


def query_root(
    root: Float[Tensor, "n e"], K_star: Float[Tensor, "q n"], k_star_star: Float[Tensor, "q"]
) -> tuple[Float[Tensor, "q e"], Float[Tensor, "q"]]:
    """The queries' logits given u: root_star, whose product with u is their mean, and their remaining variance."""
    root_star = K_star @ root / root.square().sum(0)
    return root_star, (k_star_star - root_star.square().sum(-1)).clamp(min=0)


def fit_laplace(
    likelihood: Likelihood, root: Float[Tensor, "n e"], y: Int[Tensor, "n"], n_way: int, max_steps: int = 100
) -> Laplace:
    """Find the mode by Newton's method. Where log L is not concave, negative curvature is set to zero.

    That only makes the Gaussian wider.
    """
    size = root.shape[1] * n_way
    u = root.new_zeros(root.shape[1], n_way)

    def log_joint(u: Tensor) -> float:
        return float(log_likelihood(likelihood, root @ u, y) - u.square().sum() / 2)

    value = log_joint(u)
    for _ in range(max_steps):
        slope, W = _slope_and_curvature(likelihood, root @ u, y)
        H = torch.einsum("ie,icd,ig->ecgd", root, W, root).reshape(size, size)
        L = torch.linalg.cholesky(H + torch.eye(size, dtype=H.dtype))
        step = torch.cholesky_solve((root.mT @ slope - u).reshape(-1, 1), L).reshape(u.shape)
        length = 1.0
        while log_joint(u + length * step) < value and length > 1e-6:
            length /= 2
        u = u + length * step
        before, value = value, log_joint(u)
        if value - before < 1e-8:
            break
    return Laplace(likelihood, root, y, u, L)


def estimate_log_evidence(log_weights: Float[Tensor, "s"]) -> Estimate:
    """Estimate log p(Y | X) from importance weights; the bias of the logarithm is corrected to second order."""
    n = len(log_weights)
    value = torch.logsumexp(log_weights, 0) - math.log(n)
    relative_variance = float((log_weights - value).exp().var()) / n
    return Estimate(float(value) + relative_variance / 2, math.sqrt(relative_variance))


def elliptical_slices(
    gaussian: Laplace, n_chains: int, n_steps: int, generator: np.random.Generator
) -> Float[Tensor, "s m e c"]:
    """Run n_chains for n_steps of elliptical slice sampling (Murray et al. 2010) of p(u | Y).

    The ellipses are those of the Laplace Gaussian, and the chains start at draws of it. Every step leaves p(u | Y)
    exactly invariant, however far from Gaussian it is.
    """
    u = gaussian.draw(n_chains, generator)
    height = gaussian.log_weight(u)
    steps = []
    for _ in range(n_steps):
        across = gaussian.draw(n_chains, generator) - gaussian.mode
        along = u - gaussian.mode
        level = height - as_tensor(generator.standard_exponential(n_chains))
        high = as_tensor(generator.uniform(0, 2 * math.pi, n_chains))
        angle, low, moving = high, high - 2 * math.pi, torch.ones(n_chains, dtype=torch.bool)
        while bool(moving.any()):
            turn = angle[:, None, None]
            candidate = gaussian.mode + along * turn.cos() + across * turn.sin()
            value = gaussian.log_weight(candidate)
            accepted = moving & (value >= level)
            u = torch.where(accepted[:, None, None], candidate, u)
            height = torch.where(accepted, value, height)
            moving = moving & ~accepted
            low, high = torch.where(angle < 0, angle, low), torch.where(angle < 0, high, angle)
            angle = low + (high - low) * as_tensor(generator.random(n_chains))
        steps.append(u)
    return torch.stack(steps)


def _slope_and_curvature(
    likelihood: Likelihood, f: Float[Tensor, "n c"], y: Int[Tensor, "n"]
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c c"]]:
    """Gradient of each log L(f_i | y_i), and minus its Hessian with negative eigenvalues set to zero."""
    with torch.enable_grad():
        f = f.detach().requires_grad_()
        (slope,) = torch.autograd.grad(log_likelihood(likelihood, f, y), f, create_graph=True)
        columns = [torch.autograd.grad(part.sum(), f, retain_graph=True)[0] for part in slope.unbind(-1)]
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(-torch.stack(columns, -1))
    return slope.detach(), (vectors * values.clamp(min=0)[..., None, :]) @ vectors.mT
