"""Gibbs sampling of any GP model, M chains in parallel (Algorithm 1): pure functions of state and generators."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.inference.propagation import fit_propagation
from polyshot.gp.inference.variational import draw_variational_sites, fit_variational
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.one_vs_each import OneVsEachGP
from polyshot.gp.models.posterior import Mean, Sites, full_mean, psd_root, residual
from polyshot.gp.seeds import Seeds, as_generators, standard_normal
from polyshot.gp.validation import check_task

Start = Literal["prior", "mean", "variational", "propagation"]


class GibbsState(NamedTuple):
    """One step of all chains: f [*batch, M, N, C] and the sites that it was drawn from."""

    f: Float[Tensor, "*batch m n c"]
    sites: Sites


class Chain(NamedTuple):
    """The S kept steps of M chains, f and sites [*batch, S, M, N, C]; f is None where it was not wanted."""

    f: Float[Tensor, "*batch s m n c"] | None
    sites: Sites

    @property
    def draws(self) -> Sites:
        """All kept sites as one set of S M chains, [*batch, S M, N, C], to be averaged over."""
        return Sites(self.sites.omega.flatten(-4, -3), self.sites.kappa.flatten(-4, -3))


class Prior(NamedTuple):
    """What a chain needs of the prior: K [*batch, N, N], a root of it, and the mean [*batch, 1, N, C]."""

    K: Float[Tensor, "*batch n n"]
    root: Float[Tensor, "*batch n e"]
    mean: Float[Tensor, "*batch 1 n c"]


def draw_prior(prior: Prior, n_chains: int, generators: Sequence[np.random.Generator]) -> Float[Tensor, "*batch m n c"]:
    """f ~ N(mean, K) for each chain and class."""
    n, rank, n_way = *prior.root.shape[-2:], prior.mean.shape[-1]
    batch = prior.root.shape[:-2]
    noise = standard_normal(generators, (n_chains * n_way, rank), prior.K).reshape(*batch, n_chains * n_way, rank)
    return prior.mean + (noise @ prior.root.mT).reshape(*batch, n_chains, n_way, n).mT


def draw_latent(
    model: GPModel,
    prior: Prior,
    y: Int[Tensor, "*batch n"],
    sites: Sites,
    generators: Sequence[np.random.Generator],
) -> Float[Tensor, "*batch m n c"]:
    """f ~ p(f | X, Y, sites): a draw from the prior, corrected by what the sites say."""
    f0 = draw_prior(prior, sites.omega.shape[-3], generators)
    noise = standard_normal(generators, f0.shape[-3:], prior.K).reshape(f0.shape)
    return model.correct(prior.K, y, sites, f0, noise)


def draw_probes(
    model: GPModel,
    prior: Prior,
    y: Int[Tensor, "*batch n"],
    omega: Float[Tensor, "*batch m n c"],
    generators: Sequence[np.random.Generator],
) -> Float[Tensor, "*batch m n c"]:
    """v ~ N(0, B), B = A K A^T + diag(1 / omega), of a prior with mean zero; zero where there is no site."""
    f0 = draw_prior(prior, omega.shape[-3], generators)
    noise = standard_normal(generators, f0.shape[-3:], prior.K).reshape(f0.shape)
    return residual(Sites(omega, torch.zeros_like(omega)), model.contrast(f0, y), noise)


def gibbs_step(
    model: GPModel,
    prior: Prior,
    y: Int[Tensor, "*batch n"],
    state: GibbsState,
    generators: Sequence[np.random.Generator],
) -> GibbsState:
    """One step of every chain: the sites given f, then f given the sites."""
    sites = model.draw_sites(state.f, y, generators)
    return GibbsState(draw_latent(model, prior, y, sites, generators), sites)


@torch.no_grad()
def gibbs(
    model: GPModel,
    K: Float[Tensor, "*batch n n"],
    y: Int[Tensor, "*batch n"],
    n_way: int,
    *,
    n_chains: int = 20,
    n_steps: int = 50,
    burn_in: int | None = None,
    thin: int = 1,
    start: Start = "prior",
    mean: Mean = 0.0,
    root: Float[Tensor, "*batch n e"] | None = None,
    latent: bool = True,
    seed: Seeds = None,
) -> Chain:
    """Run M chains for T steps and return the steps burn_in + 1, burn_in + 1 + thin, ... (the last by default).

    `start="prior"`, a draw of the prior, is Algorithm 1; `"mean"` is the prior's mean. `"variational"` draws the first
    sites from the variational posterior; `"propagation"` draws the first f from that of expectation propagation, which
    is so near the posterior that there is nothing left to burn in (one-vs-each only, both). `root` [*batch, N, E] with
    root root^T = K, such as a kernel's features, saves the eigendecomposition of K.
    `latent=False` leaves out f, and with it the last step's draw of f. `seed` is one for all or one a task.
    """
    K, y = check_task(K, y, n_way)
    burn_in = n_steps - 1 if burn_in is None else burn_in
    if n_chains < 1 or n_steps < 1 or thin < 1 or not 0 <= burn_in < n_steps:
        raise InputError(
            f"need n_chains, n_steps, thin >= 1 and 0 <= burn_in < n_steps; got n_chains={n_chains}, "
            f"n_steps={n_steps}, thin={thin}, burn_in={burn_in}"
        )
    if root is not None and root.shape[:-1] != K.shape[:-1]:
        raise InputError(f"root must be [..., N, E] beside K {tuple(K.shape)}; its shape is {tuple(root.shape)}")
    prior = Prior(
        K,
        psd_root(K) if root is None else root.double(),
        full_mean(mean, (*K.shape[:-1], n_way), K)[..., None, :, :],
    )
    generators = as_generators(seed, y.shape[:-1].numel())
    sites = _first_sites(model, prior, y, start, n_chains, generators)
    kept_f, kept_sites = [], []
    for step in range(n_steps):
        keep = step >= burn_in and (step - burn_in) % thin == 0
        last = step == n_steps - 1
        if latent or not last:
            f = draw_latent(model, prior, y, sites, generators)
        if keep:
            kept_sites.append(sites)
            if latent:
                kept_f.append(f)
        if not last:
            sites = model.draw_sites(f, y, generators)
    return Chain(
        torch.stack(kept_f, -4) if latent else None,
        Sites(*(torch.stack(parts, -4) for parts in zip(*kept_sites, strict=True))),
    )


def _first_sites(
    model: GPModel, prior: Prior, y: Tensor, start: Start, n_chains: int, generators: Sequence[np.random.Generator]
) -> Sites:
    """The sites of the first step."""
    if start == "prior":
        return model.draw_sites(draw_prior(prior, n_chains, generators), y, generators)
    if start == "mean":
        f = prior.mean.expand(*prior.mean.shape[:-3], n_chains, *prior.mean.shape[-2:])
        return model.draw_sites(f, y, generators)
    if start not in get_args(Start):
        raise InputError(f"unknown start {start!r}; there are {', '.join(get_args(Start))}")
    if not isinstance(model, OneVsEachGP):
        raise InputError(f"start={start!r} is for the one-vs-each GP, not for {type(model).__name__}")
    n_way, mean = prior.mean.shape[-1], prior.mean.squeeze(-3)
    if start == "variational":
        q = fit_variational(model, prior.K, y, n_way, mean=mean, tolerance=1e-2)
        return draw_variational_sites(model, q, y, n_chains, generators)
    fitted = fit_propagation(model, prior.K, y, n_way, mean=mean, tolerance=1e-2).sites
    sites = Sites(*(x.expand(*x.shape[:-3], n_chains, *x.shape[-2:]) for x in fitted))
    return model.draw_sites(draw_latent(model, prior, y, sites, generators), y, generators)
