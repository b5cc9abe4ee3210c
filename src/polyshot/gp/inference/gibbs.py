"""Gibbs sampling of any GP model, M chains in parallel (Algorithm 1): pure functions of state and generators."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.posterior import Sites, full_mean, psd_root, residual
from polyshot.gp.seeds import Seeds, as_generators, standard_normal
from polyshot.gp.shapes import Generators, KernelMatrix, KernelRoot, Labels, Mean, SiteArray
from polyshot.gp.validation import check_task


class Prior(NamedTuple):
    """What a chain needs to know about the prior.

    Attributes
    ----------
    K : Tensor [*batch, N, N]
        The kernel matrix.
    root : Tensor [*batch, N, E]
        Any root with root root^T = K.
    mean : Tensor [*batch, 1, N, C]
        The prior mean.
    """

    K: KernelMatrix
    root: KernelRoot
    mean: Float[Tensor, "*batch 1 n c"]


class GibbsState(NamedTuple):
    """One step of all chains.

    Attributes
    ----------
    f : Tensor [*batch, M, N, C]
        Latent logits.
    sites : Sites
        The sites that f was drawn from.
    """

    f: SiteArray
    sites: Sites


class Chain(NamedTuple):
    """The S steps that were kept of M chains.

    Attributes
    ----------
    f : Tensor [*batch, S, M, N, C] or None
        Latent logits; None where they were not asked for.
    sites : Sites
        Sites [*batch, S, M, N, C].
    """

    f: Float[Tensor, "*batch s m n c"] | None
    sites: Sites

    @property
    def draws(self) -> Sites:
        """All kept sites as one set of S M chains, [*batch, S M, N, C], to be averaged over."""
        return Sites(self.sites.omega.flatten(-4, -3), self.sites.kappa.flatten(-4, -3))


StartFunction = Callable[[Any, Prior, Labels, int, Generators], Sites]
"""(model, prior, y, n_chains, generators) to the sites of the first step."""
Start = Literal["prior", "mean"] | StartFunction


def draw_prior(prior: Prior, n_chains: int, generators: Generators) -> SiteArray:
    """Draw f ~ N(mean, K) for each chain and class."""
    n, rank, n_way = *prior.root.shape[-2:], prior.mean.shape[-1]
    batch = prior.root.shape[:-2]
    noise = standard_normal(generators, (n_chains * n_way, rank), prior.K).reshape(*batch, n_chains * n_way, rank)
    return prior.mean + (noise @ prior.root.mT).reshape(*batch, n_chains, n_way, n).mT


def draw_latent(model: GPModel, prior: Prior, y: Labels, sites: Sites, generators: Generators) -> SiteArray:
    """Draw f ~ p(f | X, Y, sites): a draw from the prior, corrected for the sites."""
    f0 = draw_prior(prior, sites.omega.shape[-3], generators)
    noise = standard_normal(generators, f0.shape[-3:], prior.K).reshape(f0.shape)
    return model.correct(prior.K, y, sites, f0, noise)


def draw_probes(model: GPModel, prior: Prior, y: Labels, omega: SiteArray, generators: Generators) -> SiteArray:
    """Draw v ~ N(0, B), B = A K A^T + diag(1 / omega), for a prior with mean zero; zero where there is no site."""
    f0 = draw_prior(prior, omega.shape[-3], generators)
    noise = standard_normal(generators, f0.shape[-3:], prior.K).reshape(f0.shape)
    return residual(Sites(omega, torch.zeros_like(omega)), model.contrast(f0, y), noise)


def gibbs_states(model: GPModel, prior: Prior, y: Labels, sites: Sites, generators: Generators) -> Iterator[GibbsState]:
    """Yield the states of the chains one after another, without end.

    Parameters
    ----------
    model : GPModel
        The classifier.
    prior : Prior
        Its prior.
    y : Tensor [*batch, N]
        Labels.
    sites : Sites
        The sites of the first state [*batch, M, N, C].
    generators : sequence of Generator
        One per task of the flattened batch.
    """
    while True:
        f = draw_latent(model, prior, y, sites, generators)
        yield GibbsState(f, sites)
        sites = model.draw_sites(f, y, generators)


@torch.no_grad()
def gibbs(
    model: GPModel,
    K: KernelMatrix,
    y: Labels,
    n_way: int,
    *,
    n_chains: int = 20,
    n_steps: int = 50,
    burn_in: int | None = None,
    thin: int = 1,
    start: Start = "prior",
    mean: Mean = 0.0,
    root: KernelRoot | None = None,
    latent: bool = True,
    seed: Seeds = None,
) -> Chain:
    """Run M chains for T steps and return the steps burn_in + 1, burn_in + 1 + thin, and so on.

    Parameters
    ----------
    model : GPModel
        The classifier.
    K, y : Tensor
        Kernel matrix [*batch, N, N] and labels [*batch, N] of the support set.
    n_way : int
        The number of classes.
    n_chains, n_steps : int
        M and T.
    burn_in : int, optional
        Steps to leave out at the beginning; by default all but the last.
    thin : int
        Keep every `thin`-th step after that.
    start : "prior", "mean" or a function
        Where the chains start: at a draw from the prior (Algorithm 1), at the prior's mean, or at the sites that a
        function returns. `variational_start` and `propagation_start` are such functions for the one-vs-each GP.
    mean : float or Tensor
        Prior mean.
    root : Tensor [*batch, N, E], optional
        Any root with root root^T = K, such as a kernel's features. It saves the eigendecomposition of K.
    latent : bool
        False leaves out f, and with it the last step's draw of f.
    seed : int, Generator or a sequence of them
        One seed, or one per task.

    Examples
    --------
    >>> import torch
    >>> from polyshot.gp import OneVsEachGP, gibbs
    >>> chain = gibbs(OneVsEachGP(), torch.eye(3), torch.tensor([0, 1, 0]), n_way=2, n_chains=4, n_steps=10, seed=0)
    >>> tuple(chain.draws.omega.shape)
    (4, 3, 2)
    """
    K, y = check_task(K, y, n_way)
    burn_in = n_steps - 1 if burn_in is None else burn_in
    if n_chains < 1 or n_steps < 1 or thin < 1 or not 0 <= burn_in < n_steps:
        raise InputError(
            "n_chains, n_steps and thin must be at least 1, and burn_in at least 0 and below n_steps; they are "
            f"n_chains={n_chains}, n_steps={n_steps}, thin={thin}, burn_in={burn_in}"
        )
    if root is not None and root.shape[:-1] != K.shape[:-1]:
        raise InputError(f"root must be [..., N, E] for K {tuple(K.shape)}; its shape is {tuple(root.shape)}")
    prior = Prior(
        K,
        psd_root(K) if root is None else root.double(),
        full_mean(mean, (*K.shape[:-1], n_way), K)[..., None, :, :],
    )
    generators = as_generators(seed, y.shape[:-1].numel())
    if not callable(start) and start not in _STARTS:
        raise InputError(f"unknown start {start!r}; choose from {', '.join(_STARTS)}, or give a function")
    sites = (start if callable(start) else _STARTS[start])(model, prior, y, n_chains, generators)
    kept = []
    # Without f, the last step needs only its sites.
    for step, state in enumerate(islice(gibbs_states(model, prior, y, sites, generators), n_steps - (not latent))):
        if step >= burn_in and (step - burn_in) % thin == 0:
            kept.append(state)
    kept_sites = [state.sites for state in kept]
    if not latent and (n_steps - 1 - burn_in) % thin == 0:
        kept_sites.append(sites if n_steps == 1 else model.draw_sites(state.f, y, generators))
    return Chain(
        torch.stack([state.f for state in kept], -4) if latent else None,
        Sites(*(torch.stack(parts, -4) for parts in zip(*kept_sites, strict=True))),
    )


def _prior_start(model: GPModel, prior: Prior, y: Tensor, n_chains: int, generators: Generators) -> Sites:
    return model.draw_sites(draw_prior(prior, n_chains, generators), y, generators)


def _mean_start(model: GPModel, prior: Prior, y: Tensor, n_chains: int, generators: Generators) -> Sites:
    f = prior.mean.expand(*prior.mean.shape[:-3], n_chains, *prior.mean.shape[-2:])
    return model.draw_sites(f, y, generators)


_STARTS: dict[str, StartFunction] = {"prior": _prior_start, "mean": _mean_start}
