"""The posterior of one task as an equal mixture of Gaussians, one for each set of sites, whatever gave the sites."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp.inference.tied_posterior import KernelMatrix, TiedPosterior, tied_conditional
from polyshot.gp.models.base import chain_chunks
from polyshot.gp.models.one_vs_each import OneVsEachConditional, OneVsEachGP
from polyshot.gp.models.posterior import Sites, one_hot


class Queries(NamedTuple):
    """Some queries: which rows of all they are, what the weights multiply, and their variances.

    The weights multiply the covariances with the support set or, if K is a FactoredKernel, the features.
    """

    rows: slice
    K_star: Float[Tensor, "q k"]
    k_star_star: Float[Tensor, "q"]


@dataclass(frozen=True)
class SiteMixture:
    """p(f | X, Y) of the one-vs-each GP as sites [M, N, C], M Gaussians of equal weight.

    `tied` says that the site precisions of an example are the same for all classes (and M = 1), which is cheaper.
    """

    K: KernelMatrix
    y: Int[Tensor, "n"]
    sites: Sites
    tied: bool

    def conditionals(self) -> Iterator[TiedPosterior | OneVsEachConditional]:
        """p(f | X, Y, sites), for as many chains at once as the memory allows."""
        if self.tied:
            yield self.tied_conditional()
        else:
            for part in chain_chunks(self.sites):
                yield OneVsEachGP().condition(self.K, self.y, part)  # type: ignore[arg-type]  # a matrix, if not tied

    def tied_conditional(self) -> TiedPosterior:
        """p(f | X, Y, sites) of tied sites."""
        return tied_conditional(self.K, self.y, self.sites.omega[0].amax(-1), self.sites.kappa[0])

    def weights(self) -> Float[Tensor, "n c"]:
        """The weights a of the mean logits K_* a, averaged over the chains."""
        n_chains, *shape = self.sites.omega.shape
        sums = [conditional.a.reshape(-1, *shape).sum(0) for conditional in self.conditionals()]
        return torch.stack(sums).sum(0) / n_chains

    def example_weights(self) -> Float[Tensor, "n c"]:
        """The weights a = A^T (kappa - w psi) of the examples for tied sites, also where `weights` are of features."""
        psi = self.tied_conditional().contrasts()[0]
        slope = self.sites.kappa[0] - self.sites.omega[0] * psi
        own = one_hot(self.y, slope.shape[1])
        slope = torch.where(own, 0.0, slope)
        return torch.where(own, slope.sum(-1, keepdim=True), -slope)

    def covariance(
        self, mean: Float[Tensor, "q c"], queries: Callable[[int], Iterable[Queries]]
    ) -> Float[Tensor, "q c c"]:
        """Covariance of the query logits: the mean of the chains' covariances, plus the spread of their means.

        `mean` are the mean logits of all queries. `queries(size)` yields the queries in parts; `size` is how many
        further numbers each query takes.
        """
        total = torch.zeros(*mean.shape, mean.shape[1], dtype=mean.dtype)
        for conditional in self.conditionals():
            for rows, K_star, k_star_star in queries(2 * conditional.a.numel()):
                logits = conditional.query(K_star, k_star_star)
                spread = logits.mean - mean[rows]
                total[rows] += logits.covariance.sum(0) + torch.einsum("mqc,mqd->qcd", spread, spread)
        return total.div_(len(self.sites.omega))


def grown_sites(
    sites: Sites, y: Int[Tensor, "n"], n_way: int, places: Int[Tensor, "c"]
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n d"]]:
    """Tied sites (w, kappa) to start from when a task has grown to the labels y of `n_way` classes.

    The first examples keep the sites they had, with class c now at places[c]. A comparison with a new class gets the
    mean of the example's others; a new example gets the mean of all.
    """
    w, kappa = sites.omega[0].amax(-1), sites.kappa[0]
    n, new = len(w), len(y) - len(w)
    typical = kappa.sum(-1) / (kappa.shape[-1] - 1)
    full = typical[:, None].expand(n, n_way).clone()
    full[:, places] = kappa
    w = torch.cat([w, w.mean().expand(new)])
    full = torch.cat([full, typical.mean().expand(new, n_way)])
    return w, torch.where(one_hot(y, n_way), 0.0, full)
