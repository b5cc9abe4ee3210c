"""The paper's model: GP priors on class logits under the one-vs-each likelihood, by Pólya-Gamma sites.

Snell & Zemel (2021), Sections 3 and 4 and Appendix A. The site of example i and class c != y_i looks at
psi = f_y - f_c with kappa = 1/2 and omega ~ PG(1, psi); the comparison of a class with itself is left out
(omega = 0 there), which changes nothing but a constant.

A^T Omega A is, for each example, the Laplacian of a star around its own class. Eliminating the star's centre
first (as softmax's Laplace approximation does, Rasmussen & Williams, Algorithm 3.3) and then adding what is
known of the centre gives Appendix A's matrices without its indefinite 2N x 2N system. With J's column j the
product of R_{y_j} and K's column j, and Y_c the diagonal of class c's indicator:

    R_c = (K + 1/omega_c)^-1           on the examples not of class c, zero elsewhere
    C1  = sum_c R_c                                                    [N, N] positive definite
    C2  = [y_i = y_j] (K - K J) + (I - J)^T C1^-1 (I - J)              [N, N] positive definite
    U_c = (I - R_c K) Y_c - R_c C1^-1 (I - J)
    G_cc' = [c = c'] R_c - R_c C1^-1 R_c' + U_c C2^-1 U_c'^T
    log |I + K A^T Omega A| = sum_c log |H_c| + log |C1| + log |C2|

O(C N^3) in all. A singular K is singular only up to rounding, so that for scales far beyond exp(8) its null space is
noise, as in any double precision code; the variance of psi, a difference of numbers of the scale's size, loses a digit
for every digit of the scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.linalg import solve_triangular

from polyshot.errors import InputError
from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.compiled.chains import correct_chains, solve_chains
from polyshot.gp.compiled.queries import query_chains, query_slopes
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.likelihoods import OneVsEach
from polyshot.gp.models.base import GPModel, Marginal
from polyshot.gp.models.posterior import (
    Conditional,
    Logits,
    Mean,
    Sites,
    cholesky,
    class_blocks,
    full_mean,
    log_determinant,
    one_hot,
    own,
    query_products,
    residual,
)
from polyshot.gp.models.star import OwnColumns, Star
from polyshot.gp.polya_gamma import sample_polya_gamma
from polyshot.gp.validation import check_labels


class OneVsEachGP(GPModel):
    """The one-vs-each GP; `weights` [C, C] > 0 are those of the composite likelihood (one by default)."""

    def __init__(self, weights: Float[Tensor, "c c"] | None = None) -> None:
        self.likelihood: OneVsEach = OneVsEach(weights)

    def contrast(self, f: Float[Tensor, "*batch m n c"], y: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch m n c"]:
        """Psi = f_y - f, zero at the example's own class."""
        return own(f, y)[..., None] - f

    def comparisons(self, y: Int[Tensor, "*batch n"], n_way: int) -> Float[Tensor, "*batch n c"]:
        """Weight of each comparison, the b of its PG(b, psi): zero at the example's own class."""
        weights = self.likelihood.weights
        if weights is None:
            return (~one_hot(y, n_way)).double()
        if weights.shape[0] != n_way:
            raise InputError(f"weights are for {weights.shape[0]} classes, the task has {n_way}")
        return torch.where(one_hot(y, n_way), 0.0, weights.to(y.device).double()[y])

    def draw_sites(
        self,
        f: Float[Tensor, "*batch m n c"],
        y: Int[Tensor, "*batch n"],
        generators: Sequence[np.random.Generator],
    ) -> Sites:
        """omega ~ PG(b, f_y - f_c), kappa = b / 2 (Section 4.3)."""
        return self.sites_at(self.contrast(f, y), y, generators)

    def sites_at(
        self,
        psi: Float[Tensor, "*batch m n c"],
        y: Int[Tensor, "*batch n"],
        generators: Sequence[np.random.Generator],
    ) -> Sites:
        """omega ~ PG(b, psi), task by task from its generator; no site at the own class."""
        m, n, n_way = psi.shape[-3:]
        others = torch.arange(n_way - 1, device=y.device)
        others = others + (others >= y[..., None])
        index = others[..., None, :, :].expand(*psi.shape[:-1], n_way - 1)
        tilts = psi.gather(-1, index).reshape(-1, m, n, n_way - 1)
        counts = self._counts(y, n_way, others, tilts)
        draws = [
            sample_polya_gamma(count, tilt, generator)
            for count, tilt, generator in zip(counts, tilts, generators, strict=True)
        ]
        omega = torch.zeros_like(psi, memory_format=torch.contiguous_format)
        omega.scatter_(-1, index, torch.stack(draws).reshape(index.shape))
        if self.likelihood.weights is None:
            return Sites(omega, (omega > 0).to(omega) / 2)
        return Sites(omega, (self.comparisons(y, n_way) / 2)[..., None, :, :].expand_as(omega))

    def _counts(self, y: Tensor, n_way: int, others: Tensor, tilts: Tensor) -> Sequence[int | Tensor]:
        """The b of each task's comparisons with other classes: 1, or [M, N, C - 1] from integer weights."""
        if self.likelihood.weights is None:
            return [1] * len(tilts)
        b = self.comparisons(y, n_way).gather(-1, others)
        if bool((b != b.round()).any()):
            raise InputError("Gibbs sampling needs integer pairwise weights; the variational posterior takes any")
        return list(b.long().reshape(-1, 1, *b.shape[-2:]).expand_as(tilts))

    def condition(
        self, K: Float[Tensor, "*batch n n"], y: Int[Tensor, "*batch n"], sites: Sites, mean: Mean = 0.0
    ) -> "OneVsEachConditional":
        """The Gaussian p(f | X, Y, omega), differentiable in K and in the mean."""
        K, n_way = K.double(), sites.omega.shape[-1]
        R, log_det_H = class_blocks(K, sites.omega)
        Y = one_hot(y, n_way).to(K)
        identity = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
        Kb = K[..., None, :, :]
        columns = OwnColumns.of(y, n_way)
        J = columns.product(R, Kb.expand(*R.shape[:-3], *K.shape[-2:]))
        L1 = cholesky(R.sum(-3))
        Z = solve_triangular(L1, identity - J, upper=False)
        same = (Y @ Y.mT)[..., None, :, :]
        L2 = cholesky(same * (Kb - J.mT @ Kb) + Z.mT @ Z)
        star = Star(K, Y, R, J, L1, L2, Z, columns)

        mu = full_mean(mean, (*K.shape[:-1], n_way), K)[..., None, :, :]
        psi_mu = self.contrast(mu, y)
        a = star.solve(residual(sites, psi_mu.expand_as(sites.omega)), y)
        log_det = log_det_H + log_determinant(L1) + log_determinant(L2)
        return OneVsEachConditional(K, R, a, self._log_marginal(K, y, sites, psi_mu, a, log_det), star)

    def query(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        sites: Sites,
        K_star: Float[Tensor, "*batch q n"],
        k_star_star: Float[Tensor, "*batch q"],
        mean: Mean = 0.0,
    ) -> Logits:
        """As the base class has it, by the compiled loop over chains, with a closed-form gradient."""
        K, n_way = K.double(), sites.omega.shape[-1]
        K_star, k_star_star, y = K_star.double(), k_star_star.double(), check_labels("labels", y, n_way)
        mu, mu_star = (full_mean(mean, (*x.shape[:-1], n_way), K)[..., None, :, :] for x in (K, K_star))
        r = residual(sites, self.contrast(mu, y).expand_as(sites.omega))
        products: tuple[Tensor, Tensor] = _QueryLogits.apply(K, r, K_star, y, sites.omega)  # type: ignore[no-untyped-call]
        prior = torch.diag_embed(k_star_star[..., None, :, None].expand_as(products[0]))
        return Logits(mu_star + products[0], prior - products[1])

    def _log_marginal(self, K: Tensor, y: Tensor, sites: Sites, psi_mu: Tensor, a: Tensor, log_det: Tensor) -> Tensor:
        """log p(Y | X, omega) from the weights a of the posterior mean."""
        q = sites.kappa - sites.omega * psi_mu
        quadratic = (q * self.contrast(K[..., None, :, :] @ a, y)).sum((-2, -1))
        offset = (sites.kappa * (psi_mu - 2 * np.log(2.0)) - sites.omega * psi_mu**2 / 2).sum((-2, -1))
        result: Tensor = offset + (quadratic - log_det) / 2
        return result

    def marginal(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        sites: Sites,
        mean: Mean,
        probes: Float[Tensor, "*batch m n c"] | None = None,
    ) -> Marginal:
        """As the base class has it; with probes, which need no block of G, by the compiled loop over chains."""
        if probes is None:
            return super().marginal(K, y, sites, mean)
        psi_mu = self.contrast(full_mean(mean, (*K.shape[:-1], sites.omega.shape[-1]), K)[..., None, :, :], y)
        r = torch.stack([residual(sites, psi_mu.expand_as(probes)), probes])
        (a, b), log_det, _ = self._compiled_solve(K, y, sites.omega, r)
        return Marginal(self._log_marginal(K, y, sites, psi_mu, a, log_det), a, a @ a.mT - b @ b.mT)

    def solve(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        omega: Float[Tensor, "*batch m n c"],
        r: Float[Tensor, "*batch m n c"],
    ) -> Float[Tensor, "*batch m n c"]:
        """A^T B^-1 r for one right-hand side a chain, by the compiled loop over chains."""
        return self._compiled_solve(K, y, omega, r[None])[0][0]

    def solve_with_variance(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        omega: Float[Tensor, "*batch m n c"],
        r: Float[Tensor, "*batch m n c"],
    ) -> tuple[Float[Tensor, "*batch m n c"], Float[Tensor, "*batch m n c"]]:
        """`solve`, and the posterior variance of psi = f_y - f_c for every example."""
        a, _, variance = self._compiled_solve(K, y, omega, r[None], with_variance=True)
        return a[0], variance.reshape(omega.shape)

    def _compiled_solve(
        self, K: Tensor, y: Tensor, omega: Tensor, r: Tensor, with_variance: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """a [S, *batch, M, N, C] for r of that shape, log |I + K A^T Omega A|, and the variances of psi or nothing."""
        n, n_way = omega.shape[-2:]
        y = check_labels("labels", y, n_way)
        flat = (K.reshape(-1, n, n), y.reshape(-1, n), omega.reshape(-1, n, n_way), r.reshape(len(r), -1, n, n_way))
        arrays = [as_array(x) for x in flat]
        a, log_det = np.empty_like(arrays[3]), np.empty(len(arrays[2]))
        variance = np.empty_like(arrays[2]) if with_variance else np.empty((0, 0, 0))
        out = a, log_det, variance
        in_threads(lambda first, last: solve_chains(*arrays, first, last, *out), len(log_det), n_way * n**3)
        a, log_det = a.reshape(r.shape), log_det.reshape(omega.shape[:-2])
        return as_tensor(a).to(K.device), as_tensor(log_det).to(K.device), as_tensor(variance).to(K.device)

    def correct(
        self,
        K: Float[Tensor, "*batch n n"],
        y: Int[Tensor, "*batch n"],
        sites: Sites,
        f0: Float[Tensor, "*batch m n c"],
        noise: Float[Tensor, "*batch m n c"],
    ) -> Float[Tensor, "*batch m n c"]:
        """As the base class has it, in one compiled pass."""
        n, n_way = f0.shape[-2:]
        task = (K.reshape(-1, n, n), check_labels("labels", y, n_way).reshape(-1, n))
        arrays = [as_array(x) for x in (*task, *(x.reshape(-1, n, n_way) for x in (*sites, f0, noise)))]
        f = np.empty_like(arrays[4])
        in_threads(lambda first, last: correct_chains(*arrays, first, last, f), len(f), n_way * n**3)
        return as_tensor(f.reshape(f0.shape)).to(K.device)


@dataclass(frozen=True)
class OneVsEachConditional(Conditional):
    """p(f | X, Y, omega) of the one-vs-each GP; the classes are coupled through the star's factors."""

    star: Star

    def query(
        self, K_star: Float[Tensor, "*batch q n"], k_star_star: Float[Tensor, "*batch q"], mean: Mean = 0.0
    ) -> Logits:
        """Mean and full C x C covariance of the query logits (Section 4.4)."""
        F1, F2 = self.star.factors()
        P1, P2 = query_products(K_star, F1), query_products(K_star, F2)
        coupling = (P1 @ P1.mT - P2 @ P2.mT).movedim(-3, -4)
        independent = super().query(K_star, k_star_star, mean)
        return Logits(independent.mean, independent.covariance + coupling)

    def block_sum(self) -> Float[Tensor, "*batch m n n"]:
        """Sum over the classes of G_cc."""
        return self.star.block_sum()


class _QueryLogits(torch.autograd.Function):
    """K_* a and K_* G K_*^T of every chain, with their closed-form gradients in K, r and K_* (_queries.py)."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, r: Tensor, K_star: Tensor, y: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        (n, n_way), q = omega.shape[-2:], K_star.shape[-2]
        flat = (K.reshape(-1, n, n), y.reshape(-1, n), omega.reshape(-1, n, n_way))
        task = [as_array(x) for x in flat]
        right, queries = as_array(r.reshape(-1, n, n_way)), as_array(K_star.reshape(len(task[0]), q, n))
        m, n4 = len(right), -(-n // 4) * 4
        factors = [np.zeros((m, n_way, *shape)) for shape in ((n,), (n4, n4), (n4, 2 * n4), (q, 2 * n4))]
        out = np.empty((m, q, n_way)), np.empty((m, q, n_way, n_way))
        in_threads(
            lambda first, last: query_chains(*task, right, queries, first, last, *factors, *out), m, _cost(n_way, n, q)
        )
        ctx.arrays, ctx.shapes = (*task, queries, *factors), (K.shape, r.shape, K_star.shape)
        shape = (*omega.shape[:-2], q, n_way)
        return as_tensor(out[0]).reshape(shape).to(K), as_tensor(out[1]).reshape(*shape, n_way).to(K)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, S: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        m, n, n_way = ctx.arrays[2].shape
        q = ctx.arrays[3].shape[1]
        grads = as_array(g.reshape(m, q, n_way)), as_array((S + S.mT).reshape(m, q, n_way, n_way) / 2)
        out = np.empty((m, n, n)), np.empty((m, q, n)), np.empty((m, n, n_way))
        in_threads(lambda first, last: query_slopes(*ctx.arrays, *grads, first, last, *out), m, 3 * _cost(n_way, n, q))
        in_K, in_K_star, in_r = (as_tensor(x).to(g) for x in out)
        of_K, of_r, of_K_star = ctx.shapes
        chains = of_r[:-2]
        in_K, in_K_star = (x.reshape(*chains, *x.shape[1:]).sum(-3) for x in (in_K, in_K_star))
        return in_K.reshape(of_K), in_r.reshape(of_r), in_K_star.reshape(of_K_star), None, None


def _cost(n_way: int, n: int, q: int) -> int:
    """Operations of the query logits of one chain."""
    return n_way * n**2 * (n + 3 * q)
