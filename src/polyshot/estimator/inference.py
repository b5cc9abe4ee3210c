"""The ways to the posterior that `inference` names, each with what it costs."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.chains import most_draws, run_chains, thinning
from polyshot.gp import (
    CHUNK_BYTES,
    KernelMatrix,
    OneVsEachGP,
    SiteMixture,
    TiedPropagation,
    elbo,
    fit_tied_propagation,
    fit_variational,
    fit_with_none,
)

_LARGEST_R_HAT = 1.1
Start = tuple[Float[Tensor, "n"], Float[Tensor, "n c"]]


Weights = Float[Tensor, "n"] | None


class ChainOptions(NamedTuple):
    """What only "gibbs" needs."""

    n_chains: int
    n_steps: int
    random_state: Any


class Inferred(NamedTuple):
    """The posterior, the weights a of the mean logits K_* a, log p(Y | X) (or a bound), and R-hat if chains ran."""

    posterior: SiteMixture
    weights: Float[Tensor, "n c"]
    log_evidence: float
    r_hat: float | None = None


class Inference(NamedTuple):
    """A way to the posterior.

    `numbers` is how many it keeps beyond what every fit keeps, from N, C and the options of the chains. `systems` is
    how many N x N systems a step solves, from C and the number of chains. `by_features` is whether it can do without
    the N x N matrix.
    """

    fit: Callable[[Any, Int[Tensor, "n"], int, Start | None, Weights, ChainOptions], Inferred]
    numbers: Callable[[int, int, ChainOptions], float]
    systems: Callable[[int, int], int]
    by_features: bool = False


def with_propagation(
    K: KernelMatrix, y: Tensor, n_way: int, start: Start | None, powers: Weights, options: ChainOptions
) -> Inferred:
    """Expectation propagation with tied precisions."""
    fit, weights = _propagated(K, y, n_way, start, powers)
    return Inferred(SiteMixture(K, y, fit.sites, tied=True), weights, fit.log_evidence)


def with_variational(
    K: Tensor, y: Tensor, n_way: int, start: Start | None, powers: Weights, options: ChainOptions
) -> Inferred:
    """The mean-field variational posterior."""
    model = OneVsEachGP(example_weights=powers)
    q = fit_variational(model, K, y, n_way, tolerance=1e-4)
    _warn_unless(q.converged, f"the variational posterior has not converged after {q.n_iterations} iterations")
    posterior = SiteMixture(K, y, q.sites, tied=False)
    return Inferred(posterior, posterior.weights(), float(elbo(model, K, y, q)))


def with_gibbs(
    K: Tensor, y: Tensor, n_way: int, start: Start | None, powers: Weights, options: ChainOptions
) -> Inferred:
    """Gibbs chains that start at expectation propagation's posterior."""
    if powers is not None and bool((powers != powers.round()).any()):
        raise InputError(
            'inference="gibbs" needs whole numbers in sample_weight; "propagation" and "variational" take any'
        )
    generator = np.random.default_rng(int(check_random_state(options.random_state).randint(2**31 - 1)))
    fit, _ = _propagated(K, y, n_way, start, powers)
    model = OneVsEachGP(example_weights=powers)
    draws, r_hat = run_chains(model, K, y, fit.sites, options.n_chains, options.n_steps, generator)
    if not r_hat <= _LARGEST_R_HAT:
        _warn(
            f"the chains have not mixed: R-hat is {r_hat:.2f} after {options.n_steps} steps, and should be below "
            f"{_LARGEST_R_HAT}; raise n_steps (or n_chains, if it is 1)"
        )
    posterior = SiteMixture(K, y, draws, tied=False)
    return Inferred(posterior, posterior.weights(), fit.log_evidence, r_hat)


def _gibbs_numbers(n: int, n_way: int, options: ChainOptions) -> float:
    kept = options.n_chains * options.n_steps / thinning(options.n_steps)
    together = min(kept, most_draws(options.n_chains), max(1, CHUNK_BYTES / (8 * n_way * n * n)))
    return 7.0 * kept * n * n_way + together * (n_way + 10) * n * n


_PROPAGATION = Inference(with_propagation, lambda n, n_way, _: 0.0, lambda n_way, n_chains: 1, by_features=True)
INFERENCES: dict[str, Inference] = {
    "auto": _PROPAGATION,
    "propagation": _PROPAGATION,
    "variational": Inference(
        with_variational, lambda n, n_way, _: (3.5 * n_way + 6) * n * n, lambda n_way, n_chains: n_way
    ),
    "gibbs": Inference(with_gibbs, _gibbs_numbers, lambda n_way, n_chains: n_way * n_chains),
}


def weights_with_none(posterior: SiteMixture, powers: Weights) -> Float[Tensor, "k d"]:
    """Weights of the mean logits of the classes and, last, of one more without an example.

    By expectation propagation, whatever gave the posterior. Its K should have no intercept: how frequent a class is
    does not say how near a query is to it.
    """
    fit, weights = fit_with_none(posterior.K, posterior.y, posterior.sites, powers)
    _warn_unless(fit.converged, f"outlier_score has not converged after {fit.n_sweeps} sweeps")
    return weights


def _propagated(
    K: KernelMatrix, y: Tensor, n_way: int, start: Start | None, powers: Weights
) -> tuple[TiedPropagation, Tensor]:
    fit, conditional = fit_tied_propagation(K, y, n_way, start=start, example_weights=powers)
    _warn_unless(fit.converged, f"expectation propagation has not converged after {fit.n_sweeps} sweeps")
    return fit, conditional.a


def _warn_unless(converged: bool, text: str) -> None:
    if not converged:
        _warn(f"{text}; a smaller log_scale would help")


def _warn(text: str) -> None:
    warnings.warn(text, ConvergenceWarning, stacklevel=2)
