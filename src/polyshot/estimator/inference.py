"""The posterior by any of the ways of polyshot.gp, behind one face; and whether there is memory for it."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.chains import MOST_DRAWS, run_chains, thinning
from polyshot.estimator.hyperparameters import NUMBERS_AT_ONCE
from polyshot.gp import (
    CHUNK_BYTES,
    OneVsEachConditional,
    OneVsEachGP,
    Sites,
    TiedConditional,
    chain_chunks,
    elbo,
    fit_tied_propagation,
    fit_variational,
)

INFERENCES = ("auto", "propagation", "variational", "gibbs")
_LARGEST_R_HAT = 1.1
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Posterior:
    """p(f | X, Y) as sites [M, N, C]; `tied` says that a site's precision is the same for all classes (and M = 1)."""

    K: Float[Tensor, "n n"]
    y: Int[Tensor, "n"]
    sites: Sites
    tied: bool

    def conditionals(self) -> Iterator[TiedConditional | OneVsEachConditional]:
        """p(f | X, Y, sites), of so many chains at once as the memory allows."""
        if self.tied:
            yield TiedConditional.of(self.K, self.y, self.sites.omega[0].amax(-1), self.sites.kappa[0])
        else:
            for part in chain_chunks(self.sites):
                yield OneVsEachGP().condition(self.K, self.y, part)

    def weights(self) -> Float[Tensor, "n c"]:
        """a with mean logits K_* a, averaged over the chains."""
        n_chains, *shape = self.sites.omega.shape
        sums = [conditional.a.reshape(-1, *shape).sum(0) for conditional in self.conditionals()]
        return torch.stack(sums).sum(0) / n_chains


@torch.no_grad()
def fit_posterior(
    inference: str,
    K: Float[Tensor, "n n"],
    y: Int[Tensor, "n"],
    n_way: int,
    *,
    n_chains: int,
    n_steps: int,
    generator: np.random.Generator,
    start: tuple[Tensor, Tensor] | None = None,
) -> tuple[Posterior, float, float | None]:
    """The posterior, the logarithm of the marginal likelihood, and R-hat if chains were run."""
    if inference == "variational":
        q = fit_variational(OneVsEachGP(), K, y, n_way, tolerance=1e-4)
        _warn_unless(q.converged, f"the variational posterior has not converged after {q.n_iterations} iterations")
        return Posterior(K, y, q.sites, tied=False), float(elbo(OneVsEachGP(), K, y, q)), None
    fit, _ = fit_tied_propagation(K, y, n_way, start=start)
    _warn_unless(fit.converged, f"expectation propagation has not converged after {fit.n_sweeps} sweeps")
    if inference != "gibbs":
        return Posterior(K, y, fit.sites, tied=True), fit.log_evidence, None
    draws, r_hat = run_chains(K, y, fit.sites, n_chains=n_chains, n_steps=n_steps, generator=generator)
    if not r_hat <= _LARGEST_R_HAT:
        warnings.warn(
            f"the chains have not mixed: R-hat is {r_hat:.2f} after {n_steps} steps, and should be below "
            f"{_LARGEST_R_HAT}; raise n_steps (or n_chains, if it is 1)",
            ConvergenceWarning,
            stacklevel=4,
        )
    return Posterior(K, y, draws, tied=False), fit.log_evidence, r_hat


def fit_with_none(posterior: Posterior, n_way: int, intercept: float) -> Float[Tensor, "n c"]:
    """Weights of the mean logits of the classes and, last, of one more, which every example has been told from.

    By expectation propagation, whatever gave the posterior. Without the intercept that K has: how frequent a class is
    does not say how near a query is to it.
    """
    w, kappa = posterior.sites.omega[0].amax(-1), posterior.sites.kappa[0]
    start = w, torch.cat([kappa, kappa.sum(-1, keepdim=True) / (n_way - 1)], 1)
    fit, conditional = fit_tied_propagation(
        posterior.K - intercept, posterior.y, n_way + 1, tolerance=1e-2, start=start
    )
    _warn_unless(fit.converged, f"outlier_score has not converged after {fit.n_sweeps} sweeps")
    return conditional.a


def _warn_unless(converged: bool, text: str) -> None:
    if not converged:
        warnings.warn(f"{text}; a smaller log_scale would help", ConvergenceWarning, stacklevel=5)


def needed_bytes(inference: str, n: int, n_way: int, n_features: int, n_chains: int, n_steps: int) -> float:
    """Peak memory of a fit beyond the data: the large terms with the factors that were measured (docs/estimator.md)."""
    numbers = 12.0 * n * n + 60.0 * n * n_way + 8.0 * n * n_features + 6 * min(NUMBERS_AT_ONCE, n * n_way**2)
    if inference == "variational":
        numbers += (3.5 * n_way + 6) * n * n
    if inference == "gibbs":
        kept = n_chains * n_steps / thinning(n_steps)
        together = min(kept, MOST_DRAWS, max(1, CHUNK_BYTES / (8 * n_way * n * n)))
        numbers += 7.0 * kept * n * n_way + together * (n_way + 10) * n * n
    return 8 * numbers


def memory_bytes() -> float:
    """Memory of the machine, or of the container where that has less; infinite where the system tells neither."""
    sizes = [float("inf")]
    with contextlib.suppress(AttributeError, ValueError):  # Unix alone has sysconf
        sizes.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        sizes.append(float(_CONTAINER_LIMIT.read_text()))
    return min(sizes)


def check_memory(inference: str, n: int, n_way: int, n_features: int, n_chains: int, n_steps: int) -> None:
    """Refuse before the first large allocation what would not fit."""
    needed = needed_bytes(inference, n, n_way, n_features, n_chains, n_steps)
    there = memory_bytes()
    if needed > 0.8 * there:
        advice = "" if inference in ("auto", "propagation") else ' or inference="propagation"'
        raise InputError(
            f"{n:,} examples of {n_way:,} classes need about {needed / 2**30:,.1f} GB with "
            f"inference={inference!r}, this machine has {there / 2**30:,.1f} GB; fit fewer examples a class{advice}"
        )
