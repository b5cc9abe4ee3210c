"""How close is a posterior q to that of the softmax GP? Its ELBO, log p(Y | X) - KL(q | p), estimated in three ways.

The posterior of a likelihood L is q(f) = p(f) L(f | Y) / Z. The prior cancels from its ELBO,

    ELBO(q) = E_q[log softmax(Y | f) - log L(f | Y)] + log Z,

so it needs only draws of q and one number, log Z, which is exact for the Gaussian likelihood and estimated by
importance sampling for the others. `mixture_elbo` and `fitted_elbo` replace q by a distribution whose density is known:
the mixture over the sites of a Gibbs run, and the Gaussian with the moments of its draws. They are exact for that
distribution.
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from paper.studies.softmax_posterior import Estimate, log_likelihood
from polyshot.errors import InputError
from polyshot.gp import GPModel, Likelihood, Sites, Softmax, as_tensor


def evidence_elbo(
    likelihood: Likelihood, f: Float[Tensor, "s m n c"], y: Int[Tensor, "n"], log_z: Estimate
) -> Estimate:
    """Estimate the ELBO of the posterior of `likelihood`; f holds S steps of M independent chains."""
    each = log_likelihood(Softmax(), f, y) - log_likelihood(likelihood, f, y)
    chains = each.mean(0)
    return Estimate(
        float(chains.mean()) + log_z.value, math.hypot(float(chains.std()) / math.sqrt(len(chains)), log_z.error)
    )


def mixture_elbo(
    model: GPModel,
    root: Float[Tensor, "n e"],
    y: Int[Tensor, "n"],
    sites: Sites,
    generator: np.random.Generator,
    draws_each: int = 8,
) -> Estimate:
    """Estimate the ELBO of q(f) = mean_m p(f | X, Y, sites_m), the mixture over a Gibbs run with sites [M, N, C]."""
    n, n_way = sites.omega.shape[-2:]
    omega, kappa = (part.to(root) for part in sites)
    size = root.shape[1] * n_way
    A = model.contrast(torch.eye(n_way, dtype=root.dtype)[:, None, :].expand(-1, n, -1), y).permute(1, 2, 0)
    W = torch.einsum("ijc,mij,ijd->micd", A, omega, A)
    H = torch.einsum("ie,micd,ig->mecgd", root, W, root).reshape(-1, size, size)
    L = torch.linalg.cholesky(H + torch.eye(size, dtype=H.dtype))
    b = torch.einsum("ie,ijc,mij->mec", root, A, kappa).reshape(-1, size, 1)
    mean = torch.cholesky_solve(b, L)
    log_z = (b * mean).sum((-2, -1)) / 2 - L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    noise = as_tensor(generator.standard_normal((len(L), size, draws_each)))
    u = (mean + torch.linalg.solve_triangular(L.mT, noise, upper=True)).mT.reshape(-1, root.shape[1], n_way)
    f = root @ u
    psi = model.contrast(f, y).flatten(1)
    log_ratio = psi @ kappa.flatten(1).mT - psi.square() @ omega.flatten(1).mT / 2 - log_z
    each = log_likelihood(Softmax(), f, y) - (torch.logsumexp(log_ratio, -1) - math.log(len(L)))
    components = each.reshape(-1, draws_each).mean(1)
    return Estimate(float(components.mean()), float(components.std()) / math.sqrt(len(components)))


def fitted_elbo(
    root: Float[Tensor, "n e"],
    y: Int[Tensor, "n"],
    f: Float[Tensor, "s m n c"],
    generator: np.random.Generator,
    n_draws: int = 2000,
) -> Estimate:
    """Estimate the ELBO of the Gaussian with the moments of the draws f; there must be many more draws than N C."""
    u = (torch.linalg.pinv(root) @ f).flatten(0, 1).flatten(1)
    if len(u) <= 2 * u.shape[1]:
        raise InputError(f"a Gaussian in {u.shape[1]} dimensions needs more than {2 * u.shape[1]} draws, not {len(u)}")
    mean, L = u.mean(0), torch.linalg.cholesky(torch.cov(u.mT))
    z = as_tensor(generator.standard_normal((n_draws, len(mean))))
    new = mean + z @ L.mT
    log_ratio = (new.square() - z.square()).sum(-1) / 2 - L.diagonal().log().sum()
    each = log_likelihood(Softmax(), root @ new.reshape(n_draws, root.shape[1], -1), y) - log_ratio
    return Estimate(float(each.mean()), float(each.std()) / math.sqrt(n_draws))
