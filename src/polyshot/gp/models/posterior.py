"""What the three GP models share: sites, the Gaussian posterior that they give, and its query logits.

Every model here becomes Gaussian once its auxiliary variables are known: the likelihood of psi = A f is then
proportional to exp(kappa psi - omega psi^2 / 2), a "site" for each of its entries. With z = kappa / omega and
B = A K A^T + diag(1 / omega), all that is ever needed is

    a = A^T B^-1 (z - A mu)   [N, C]         E[f] = mu + K a,     E[f_*] = mu_* + K_* a
    G = A^T B^-1 A            [C N, C N]     Cov[f] = K - K G K,  Cov[f_*] = k_** - K_* G K_*^T

and d log p(Y | X, omega) / dK = sum_c (a_c a_c^T - G_cc) / 2, d / dmu = a. Neither K nor B is inverted.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.arrays import as_array
from polyshot.gp.compiled.chains import class_blocks_chains
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.validation import NOT_DEFINITE, check_finite

Mean = float | Float[Tensor, "..."]


class Sites(NamedTuple):
    """Gaussian pseudo-likelihood exp(kappa psi - omega psi^2 / 2), entry by entry; omega = 0 is no site."""

    omega: Float[Tensor, "*batch m n c"]
    kappa: Float[Tensor, "*batch m n c"]


class Logits(NamedTuple):
    """Gaussian posterior of the C logits of each query, for each chain."""

    mean: Float[Tensor, "*batch m q c"]
    covariance: Float[Tensor, "*batch m q c c"]


@dataclass(frozen=True)
class Conditional:
    """p(f | X, Y, sites) of a model whose classes are independent given the sites (A is the identity).

    R [*batch, M, C, N, N] are the class blocks of B^-1, a [*batch, M, N, C] the weights of the posterior
    mean, log_marginal [*batch, M] is log p(Y | X, sites).
    """

    K: Float[Tensor, "*batch n n"]
    R: Float[Tensor, "*batch m c n n"]
    a: Float[Tensor, "*batch m n c"]
    log_marginal: Float[Tensor, "*batch m"]

    def query(
        self,
        K_star: Float[Tensor, "*batch q n"],
        k_star_star: Float[Tensor, "*batch q"],
        mean: Mean = 0.0,
    ) -> Logits:
        """Mean and covariance of the query logits (Section 4.4); `mean` broadcasts to [*batch, Q, C]."""
        Rk = query_products(K_star, self.R)
        variance = k_star_star[..., :, None, None] - (Rk * K_star[..., :, None, None, :]).sum(-1)
        return Logits(self.query_mean(K_star, mean), torch.diag_embed(variance.movedim(-2, -3)))

    def query_mean(self, K_star: Float[Tensor, "*batch q n"], mean: Mean = 0.0) -> Float[Tensor, "*batch m q c"]:
        """Mean of the query logits, mu_* + K_* a."""
        shape = (*K_star.shape[:-1], self.a.shape[-1])
        return full_mean(mean, shape, self.a)[..., None, :, :] + K_star[..., None, :, :] @ self.a

    def block_sum(self) -> Float[Tensor, "*batch m n n"]:
        """Sum over the classes of G_cc."""
        return self.R.sum(-3)


def query_products(
    K_star: Float[Tensor, "*batch q n"], X: Float[Tensor, "*batch m c n n"]
) -> Float[Tensor, "*batch q m c n"]:
    """K_star X_c for every chain and class, as one product of [Q, N] with [N, M C N] for each task."""
    m, c, n = X.shape[-4:-1]
    wide = X.movedim(-2, -4).reshape(*K_star.shape[:-2], n, m * c * n)
    return (K_star @ wide).reshape(*K_star.shape[:-1], m, c, n)


def independent_condition(
    K: Float[Tensor, "*batch n n"],
    R: Float[Tensor, "*batch m c n n"],
    log_det: Float[Tensor, "*batch m"],
    sites: Sites,
    mean: Mean,
    constant: Float[Tensor, "*batch m"],
) -> Conditional:
    """The conditional of a model with A the identity; `constant` is what log_marginal has besides the sites."""
    mu = full_mean(mean, (*K.shape[:-1], sites.omega.shape[-1]), K)[..., None, :, :]
    a = (R @ residual(sites, mu.expand_as(sites.omega)).mT[..., None]).squeeze(-1).mT
    q = sites.kappa - sites.omega * mu
    quadratic = (q * (K[..., None, :, :] @ a)).sum((-2, -1))
    offset = (sites.kappa * mu - sites.omega * mu**2 / 2).sum((-2, -1))
    return Conditional(K, R, a, constant + offset + (quadratic - log_det) / 2)


def class_blocks(
    K: Float[Tensor, "*batch n n"], omega: Float[Tensor, "*batch m n c"]
) -> tuple[Float[Tensor, "*batch m c n n"], Float[Tensor, "*batch m"]]:
    """R_c = (K + diag(1 / omega_c))^-1 and sum_c log |I + K diag(omega_c)|; rows with omega = 0 are zero.

    By H_c = I + omega_c^(1/2) K omega_c^(1/2), whose eigenvalues are at least one, so any scale and rank of K
    will do. Where K needs no gradient, a compiled loop does the same.
    """
    if not (torch.is_grad_enabled() and (K.requires_grad or omega.requires_grad)):
        return _compiled_class_blocks(K, omega)
    root, L = site_factor(K, omega)
    R = root[..., :, None] * torch.cholesky_inverse(L) * root[..., None, :]
    return R, log_determinant(L).sum(-1)


def site_factor(
    K: Float[Tensor, "*batch n n"], omega: Float[Tensor, "*batch m n c"]
) -> tuple[Float[Tensor, "*batch m c n"], Float[Tensor, "*batch m c n n"]]:
    """omega^(1/2), class by class, and the Cholesky factor of H_c."""
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


def cholesky(H: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """Lower Cholesky factor, with an error that names the likely cause."""
    L: Tensor
    L, info = torch.linalg.cholesky_ex(H)
    if bool(info.any()):
        raise InputError(NOT_DEFINITE)
    return L


def log_determinant(L: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    """Log-determinant of L L^T."""
    return 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def psd_root(K: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """A matrix S with S S^T = K, for K of any rank."""
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(K)
    if bool((values[..., 0] < -1e-6 * values[..., -1].abs()).any()):
        raise InputError(NOT_DEFINITE)
    return values.clamp(min=0).sqrt()[..., None, :] * vectors


def residual(
    sites: Sites, psi: Float[Tensor, "*batch m n c"], noise: Float[Tensor, "*batch m n c"] | None = None
) -> Float[Tensor, "*batch m n c"]:
    """kappa / omega - psi (- noise / sqrt(omega)), and zero where there is no site."""
    there = sites.omega > 0
    omega = torch.where(there, sites.omega, 1.0)
    r = sites.kappa / omega - psi
    if noise is not None:
        r = r - noise / omega.sqrt()
    return torch.where(there, r, 0.0)


def own(x: Float[Tensor, "*batch m n c"], y: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch m n"]:
    """x[..., i, y_i]."""
    index = y[..., None, :, None].expand(*x.shape[:-1], 1)
    return x.gather(-1, index).squeeze(-1)


def one_hot(y: Int[Tensor, "*batch n"], n_way: int) -> Bool[Tensor, "*batch n c"]:
    """Y with Y[..., i, y_i] = True."""
    return y[..., None] == torch.arange(n_way, device=y.device)


def full_mean(mean: Mean, shape: tuple[int, ...], like: Tensor) -> Float[Tensor, "*batch n c"]:
    """The prior mean, given as a number or as a tensor that broadcasts, at its full [*batch, N, C]."""
    tensor = torch.as_tensor(mean, dtype=like.dtype, device=like.device)
    check_finite("the prior mean", tensor)
    try:
        return tensor.expand(shape)
    except RuntimeError as error:
        raise InputError(f"a mean of shape {tuple(tensor.shape)} does not broadcast to {tuple(shape)}") from error
