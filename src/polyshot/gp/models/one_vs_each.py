"""The paper's model: GP priors on class logits under the one-vs-each likelihood, with Pólya-Gamma sites.

Snell & Zemel (2021), Sections 3 and 4 and Appendix A. The site of example i and class c != y_i acts on psi = f_y - f_c,
with kappa = 1/2 and omega ~ PG(1, psi). The comparison of a class with itself is left out (omega = 0 there), which only
changes a constant.

For each example A^T Omega A is the Laplacian of a star around its own class. Eliminating the star's centre first (as
softmax's Laplace approximation does, Rasmussen & Williams, Algorithm 3.3) and then adding what is known about the
centre gives Appendix A's matrices without its indefinite 2N x 2N system. With column j of J equal to R_{y_j} times
column j of K, and Y_c the diagonal matrix of class c's indicator:

    R_c = (K + 1/omega_c)^-1           on the examples not of class c, zero elsewhere
    C1  = sum_c R_c                                                    [N, N] positive definite
    C2  = [y_i = y_j] (K - K J) + (I - J)^T C1^-1 (I - J)              [N, N] positive definite
    U_c = (I - R_c K) Y_c - R_c C1^-1 (I - J)
    G_cc' = [c = c'] R_c - R_c C1^-1 R_c' + U_c C2^-1 U_c'^T
    log |I + K A^T Omega A| = sum_c log |H_c| + log |C1| + log |C2|

The total cost is O(C N^3). A singular K is singular only up to rounding, so for scales far beyond exp(8) its null space
is noise, as in any double precision code. The variance of psi is a difference of numbers as large as the scale: each
digit of the scale costs one digit of the variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.compiled.chains import correct_chains, solve_chains
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.likelihoods import OneVsEach
from polyshot.gp.models.base import GPModel, Marginal
from polyshot.gp.models.explained import explained_by_support
from polyshot.gp.models.posterior import (
    Conditional,
    Logits,
    Sites,
    full_mean,
    one_hot,
    own,
    query_products,
    residual,
)
from polyshot.gp.models.star import Star
from polyshot.gp.polya_gamma import sample_polya_gamma
from polyshot.gp.shapes import (
    ChainMatrices,
    Generators,
    KernelMatrix,
    Labels,
    Mean,
    PerClass,
    QueryCovariances,
    QueryVariances,
    SiteArray,
)
from polyshot.gp.validation import check_labels, checked_weights


class OneVsEachGP(GPModel):
    """GP priors on class logits under the one-vs-each likelihood.

    Parameters
    ----------
    weights : Tensor [C, C], optional
        Weights of the composite likelihood, all one by default; zero leaves a comparison out. Gibbs sampling needs
        integers, expectation propagation ones.
    example_weights : Tensor [N], optional
        Powers of the examples' likelihoods, all one by default; integers for Gibbs sampling. Two is the example twice.
    """

    def __init__(
        self, weights: Float[Tensor, "c c"] | None = None, *, example_weights: Float[Tensor, "n"] | None = None
    ) -> None:
        self.likelihood: OneVsEach = OneVsEach(weights)
        self.example_weights = example_weights

    @property
    def weighted(self) -> bool:
        """Whether any comparison may have another weight than one."""
        return self.likelihood.weights is not None or self.example_weights is not None

    def contrast(self, f: SiteArray, y: Labels) -> SiteArray:
        """Psi = f_y - f, zero at the example's own class."""
        return own(f, y)[..., None] - f

    def comparisons(self, y: Labels, n_way: int) -> PerClass:
        """Weight of each comparison, which is the b of its PG(b, psi); zero at the example's own class."""
        weights, others = self.likelihood.weights, (~one_hot(y, n_way)).double()
        if weights is not None:
            if weights.shape[0] != n_way:
                raise InputError(f"weights are for {weights.shape[0]} classes, the task has {n_way}")
            others *= weights.to(y.device).double()[y]
        return others if self.example_weights is None else others * checked_weights(self.example_weights, y)[:, None]

    def draw_sites(self, f: SiteArray, y: Labels, generators: Generators) -> Sites:
        """omega ~ PG(b, f_y - f_c), kappa = b / 2 (Section 4.3)."""
        return self.sites_at(self.contrast(f, y), y, generators)

    def sites_at(self, psi: SiteArray, y: Labels, generators: Generators) -> Sites:
        """omega ~ PG(b, psi), each task from its generator; no site at the own class."""
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
        if not self.weighted:
            return Sites(omega, (omega > 0).to(omega) / 2)
        return Sites(omega, (self.comparisons(y, n_way) / 2)[..., None, :, :].expand_as(omega))

    def _counts(self, y: Tensor, n_way: int, others: Tensor, tilts: Tensor) -> Sequence[int | Tensor]:
        """The b of each task's comparisons with other classes: 1, or [M, N, C - 1] from integer weights."""
        if not self.weighted:
            return [1] * len(tilts)
        b = self.comparisons(y, n_way).gather(-1, others)
        if bool((b != b.round()).any()):
            raise InputError("Gibbs sampling needs integer weights; use fit_variational, which takes any")
        return list(b.long().reshape(-1, 1, *b.shape[-2:]).expand_as(tilts))

    def condition(self, K: KernelMatrix, y: Labels, sites: Sites, mean: Mean = 0.0) -> "OneVsEachConditional":
        """The Gaussian p(f | X, Y, omega), differentiable in K and in the mean."""
        K, n_way = K.double(), sites.omega.shape[-1]
        star, log_det = Star.of(K, y, sites.omega)
        mu = full_mean(mean, (*K.shape[:-1], n_way), K)[..., None, :, :]
        psi_mu = self.contrast(mu, y)
        a = star.solve(residual(sites, psi_mu.expand_as(sites.omega)), y)
        return OneVsEachConditional(K, star.R, a, self._log_marginal(K, y, sites, psi_mu, a, log_det), star)

    def query(
        self,
        K: KernelMatrix,
        y: Labels,
        sites: Sites,
        K_star: QueryCovariances,
        k_star_star: QueryVariances,
        mean: Mean = 0.0,
    ) -> Logits:
        """As in the base class, with a closed-form gradient."""
        K, n_way = K.double(), sites.omega.shape[-1]
        K_star, k_star_star, y = K_star.double(), k_star_star.double(), check_labels("labels", y, n_way)
        mu, mu_star = (full_mean(mean, (*x.shape[:-1], n_way), K)[..., None, :, :] for x in (K, K_star))
        r = residual(sites, self.contrast(mu, y).expand_as(sites.omega))
        shift, explained = explained_by_support(K, r, K_star, y, sites.omega)
        prior = torch.diag_embed(k_star_star[..., None, :, None].expand_as(shift))
        return Logits(mu_star + shift, prior - explained)

    def _log_marginal(self, K: Tensor, y: Tensor, sites: Sites, psi_mu: Tensor, a: Tensor, log_det: Tensor) -> Tensor:
        """log p(Y | X, omega) from the weights a of the posterior mean."""
        q = sites.kappa - sites.omega * psi_mu
        quadratic = (q * self.contrast(K[..., None, :, :] @ a, y)).sum((-2, -1))
        offset = (sites.kappa * (psi_mu - 2 * np.log(2.0)) - sites.omega * psi_mu**2 / 2).sum((-2, -1))
        result: Tensor = offset + (quadratic - log_det) / 2
        return result

    def marginal(
        self, K: KernelMatrix, y: Labels, sites: Sites, mean: Mean, probes: SiteArray | None = None
    ) -> Marginal:
        """As in the base class; with probes, which need no block of G, by the compiled loop over chains."""
        if probes is None:
            return super().marginal(K, y, sites, mean)
        psi_mu = self.contrast(full_mean(mean, (*K.shape[:-1], sites.omega.shape[-1]), K)[..., None, :, :], y)
        r = torch.stack([residual(sites, psi_mu.expand_as(probes)), probes])
        (a, b), log_det, _ = self._compiled_solve(K, y, sites.omega, r)
        return Marginal(self._log_marginal(K, y, sites, psi_mu, a, log_det), a, a @ a.mT - b @ b.mT)

    def solve(self, K: KernelMatrix, y: Labels, omega: SiteArray, r: SiteArray) -> SiteArray:
        """A^T B^-1 r for one right-hand side per chain, by the compiled loop over chains."""
        return self._compiled_solve(K, y, omega, r[None])[0][0]

    def solve_with_variance(
        self, K: KernelMatrix, y: Labels, omega: SiteArray, r: SiteArray
    ) -> tuple[SiteArray, SiteArray]:
        """`solve`, and the posterior variance of psi = f_y - f_c for every example."""
        a, _, variance = self._compiled_solve(K, y, omega, r[None], with_variance=True)
        return a[0], variance.reshape(omega.shape)

    def _compiled_solve(
        self, K: Tensor, y: Tensor, omega: Tensor, r: Tensor, with_variance: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """a [S, *batch, M, N, C] for r of that shape; log |I + K A^T Omega A|; the variances of psi, or nothing."""
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

    def correct(self, K: KernelMatrix, y: Labels, sites: Sites, f0: SiteArray, noise: SiteArray) -> SiteArray:
        """As in the base class, in one compiled pass."""
        n, n_way = f0.shape[-2:]
        task = (K.reshape(-1, n, n), check_labels("labels", y, n_way).reshape(-1, n))
        arrays = [as_array(x) for x in (*task, *(x.reshape(-1, n, n_way) for x in (*sites, f0, noise)))]
        f = np.empty_like(arrays[4])
        in_threads(lambda first, last: correct_chains(*arrays, first, last, f), len(f), n_way * n**3)
        return as_tensor(f.reshape(f0.shape)).to(K.device)


def check_one_vs_each(model: GPModel) -> OneVsEachGP:
    """Return the model if it is a one-vs-each GP."""
    if not isinstance(model, OneVsEachGP):
        raise InputError(f"this needs the one-vs-each GP, not {type(model).__name__}")
    return model


@dataclass(frozen=True)
class OneVsEachConditional(Conditional):
    """p(f | X, Y, omega) of the one-vs-each GP, whose classes are coupled through the star's factors."""

    star: Star

    def query(self, K_star: QueryCovariances, k_star_star: QueryVariances, mean: Mean = 0.0) -> Logits:
        """Mean and full C x C covariance of the query logits (Section 4.4)."""
        F1, F2 = self.star.factors()
        P1, P2 = query_products(K_star, F1), query_products(K_star, F2)
        coupling = (P1 @ P1.mT - P2 @ P2.mT).movedim(-3, -4)
        independent = super().query(K_star, k_star_star, mean)
        return Logits(independent.mean, independent.covariance + coupling)

    def block_sum(self) -> ChainMatrices:
        """Sum over the classes of G_cc."""
        return self.star.block_sum()
