"""What all GP models share: sites, the Gaussian posterior that sites give, and its query logits.

Every model becomes Gaussian once its auxiliary variables are known. The likelihood of psi = A f is then proportional to
exp(kappa psi - omega psi^2 / 2), one "site" per entry of psi. With z = kappa / omega and B = A K A^T + diag(1 / omega),
everything follows from

    a = A^T B^-1 (z - A mu)   [N, C]         E[f] = mu + K a,     E[f_*] = mu_* + K_* a
    G = A^T B^-1 A            [C N, C N]     Cov[f] = K - K G K,  Cov[f_*] = k_** - K_* G K_*^T

and d log p(Y | X, omega) / dK = sum_c (a_c a_c^T - G_cc) / 2, d / dmu = a. Neither K nor B is inverted.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.arrays import as_array
from polyshot.gp.compiled.chains import class_blocks_chains
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.shapes import (
    ChainMatrices,
    ClassMatrices,
    KernelMatrix,
    Labels,
    Mean,
    PerChain,
    PerClass,
    QueryCovariances,
    QueryLogitCovariances,
    QueryLogits,
    QueryVariances,
    SiteArray,
)
from polyshot.gp.validation import NOT_DEFINITE, check_finite_tensor


class Sites(NamedTuple):
    """Gaussian pseudo-likelihood exp(kappa psi - omega psi^2 / 2), entry by entry.

    Attributes
    ----------
    omega : Tensor [*batch, M, N, C]
        Precision of each site; zero means that there is no site.
    kappa : Tensor [*batch, M, N, C]
        Linear coefficient of each site.
    """

    omega: SiteArray
    kappa: SiteArray


class Logits(NamedTuple):
    """Gaussian posterior of the C logits of each query, for each chain.

    Attributes
    ----------
    mean : Tensor [*batch, M, Q, C]
        Posterior means.
    covariance : Tensor [*batch, M, Q, C, C]
        Posterior covariances.
    """

    mean: QueryLogits
    covariance: QueryLogitCovariances


@dataclass(frozen=True)
class Conditional:
    """p(f | X, Y, sites) of a model whose classes are independent given the sites (A is the identity).

    Attributes
    ----------
    K : Tensor [*batch, N, N]
        The kernel matrix.
    R : Tensor [*batch, M, C, N, N]
        The class blocks of B^-1.
    a : Tensor [*batch, M, N, C]
        The weights of the posterior mean.
    log_marginal : Tensor [*batch, M]
        log p(Y | X, sites).
    """

    K: KernelMatrix
    R: ClassMatrices
    a: SiteArray
    log_marginal: PerChain

    def query(self, K_star: QueryCovariances, k_star_star: QueryVariances, mean: Mean = 0.0) -> Logits:
        """Mean and covariance of the query logits (Section 4.4); `mean` broadcasts to [*batch, Q, C]."""
        Rk = query_products(K_star, self.R)
        variance = k_star_star[..., :, None, None] - (Rk * K_star[..., :, None, None, :]).sum(-1)
        variance = variance.clamp(min=0.0)  # a huge scale may round it below zero
        return Logits(self.query_mean(K_star, mean), torch.diag_embed(variance.movedim(-2, -3)))

    def query_mean(self, K_star: QueryCovariances, mean: Mean = 0.0) -> QueryLogits:
        """Mean of the query logits, mu_* + K_* a."""
        shape = (*K_star.shape[:-1], self.a.shape[-1])
        return full_mean(mean, shape, self.a)[..., None, :, :] + K_star[..., None, :, :] @ self.a

    def block_sum(self) -> ChainMatrices:
        """Sum over the classes of G_cc."""
        return self.R.sum(-3)


def query_products(K_star: QueryCovariances, X: Float[Tensor, "*batch m c n w"]) -> Float[Tensor, "*batch q m c w"]:
    """K_star X_c for every chain and class, as one product of [Q, N] with [N, M C W] per task."""
    m, c, n, w = X.shape[-4:]
    wide = X.movedim(-2, -4).reshape(*K_star.shape[:-2], n, m * c * w)
    return (K_star @ wide).reshape(*K_star.shape[:-1], m, c, w)


def outer_products(K_star: QueryCovariances) -> Float[Tensor, "*batch q nn"]:
    """k k^T of each query, as a row of N^2 numbers."""
    return (K_star[..., :, None] * K_star[..., None, :]).flatten(-2)


def independent_condition(
    K: KernelMatrix,
    R: ClassMatrices,
    log_det: PerChain,
    sites: Sites,
    mean: Mean,
    constant: PerChain,
) -> Conditional:
    """The conditional of a model with A the identity; `constant` is the part of log_marginal outside the sites."""
    mu = full_mean(mean, (*K.shape[:-1], sites.omega.shape[-1]), K)[..., None, :, :]
    a = (R @ residual(sites, mu.expand_as(sites.omega)).mT[..., None]).squeeze(-1).mT
    q = sites.kappa - sites.omega * mu
    quadratic = (q * (K[..., None, :, :] @ a)).sum((-2, -1))
    offset = (sites.kappa * mu - sites.omega * mu**2 / 2).sum((-2, -1))
    return Conditional(K, R, a, constant + offset + (quadratic - log_det) / 2)


def class_blocks(K: KernelMatrix, omega: SiteArray) -> tuple[ClassMatrices, PerChain]:
    """R_c = (K + diag(1 / omega_c))^-1 and sum_c log |I + K diag(omega_c)|; rows with omega = 0 are zero.

    Uses H_c = I + omega_c^(1/2) K omega_c^(1/2), whose eigenvalues are at least one, so K may have any scale and rank.
    Where no gradient is wanted, a compiled loop does the same.
    """
    if not (torch.is_grad_enabled() and (K.requires_grad or omega.requires_grad)):
        return _compiled_class_blocks(K, omega)
    root, L = site_factor(K, omega)
    R = root[..., :, None] * torch.cholesky_inverse(L) * root[..., None, :]
    return R, log_determinant(L).sum(-1)


def site_factor(K: KernelMatrix, omega: SiteArray) -> tuple[Float[Tensor, "*batch m c n"], ClassMatrices]:
    """omega^(1/2) for each class, and the Cholesky factor of H_c."""
    root = omega.mT.sqrt()
    H = root[..., :, None] * K[..., None, None, :, :] * root[..., None, :]
    return root, cholesky(H + torch.eye(K.shape[-1], dtype=K.dtype, device=K.device))


def _compiled_class_blocks(K: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
    n, n_way = omega.shape[-2:]
    K_flat, omega_flat = as_array(K.reshape(-1, n, n)), as_array(omega.mT.reshape(-1, n_way, n))
    R = torch.empty(*omega.shape[:-2], n_way, n, n, dtype=torch.float64)
    log_det = torch.empty(omega.shape[:-2], dtype=torch.float64)
    out = R.reshape(-1, n_way, n, n).numpy(), log_det.reshape(-1).numpy()
    in_threads(
        lambda first, last: class_blocks_chains(K_flat, omega_flat, first, last, *out), len(omega_flat), n_way * n**3
    )
    return R.to(K.device), log_det.to(K.device)


def cholesky(H: KernelMatrix) -> KernelMatrix:
    """Lower Cholesky factor, with an error that names the likely cause."""
    L: Tensor
    L, info = torch.linalg.cholesky_ex(H)
    if bool(info.any()):
        raise InputError(NOT_DEFINITE)
    return L


def log_determinant(L: KernelMatrix) -> Float[Tensor, "*batch"]:
    """Log-determinant of L L^T."""
    return 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def psd_root(K: KernelMatrix) -> KernelMatrix:
    """Return a matrix S with S S^T = K, for K of any rank."""
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(K)
    if bool((values[..., 0] < -1e-6 * values[..., -1].abs()).any()):
        raise InputError(NOT_DEFINITE)
    return values.clamp(min=0).sqrt()[..., None, :] * vectors


def residual(sites: Sites, psi: SiteArray, noise: SiteArray | None = None) -> SiteArray:
    """kappa / omega - psi (- noise / sqrt(omega)), and zero where there is no site."""
    there = sites.omega > 0
    omega = torch.where(there, sites.omega, 1.0)
    r = sites.kappa / omega - psi
    if noise is not None:
        r = r - noise / omega.sqrt()
    return torch.where(there, r, 0.0)


def own(x: SiteArray, y: Labels) -> Float[Tensor, "*batch m n"]:
    """x[..., i, y_i]."""
    index = y[..., None, :, None].expand(*x.shape[:-1], 1)
    return x.gather(-1, index).squeeze(-1)


def one_hot(y: Labels, n_way: int) -> Bool[Tensor, "*batch n c"]:
    """Return Y [*batch, N, C] with Y[..., i, y_i] = True and False elsewhere."""
    return y[..., None] == torch.arange(n_way, device=y.device)


def full_mean(mean: Mean, shape: tuple[int, ...], like: Tensor) -> PerClass:
    """Expand the prior mean, a number or a tensor that broadcasts, to its full shape [*batch, N, C]."""
    tensor = torch.as_tensor(mean, dtype=like.dtype, device=like.device)
    check_finite_tensor("the prior mean", tensor)
    try:
        return tensor.expand(shape)
    except RuntimeError as error:
        raise InputError(f"a mean of shape {tuple(tensor.shape)} does not broadcast to {tuple(shape)}") from error
