"""One split of the paper's Iris experiment (Section 5.1.3): every posterior, its predictions and its ELBO.

The data are the first two features, with zero prior mean and k(x, x') = exp(-|x - x'|^2 / 2). There are two rules of
prediction: "mean" applies the normalised likelihood to the posterior mean of the logits, as the paper does; "full"
averages the normalised likelihood over the posterior of the logits.
"""

import math
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.datasets import load_iris
from torch import Tensor

from paper.studies.compared import RIVALS
from paper.studies.elbo import evidence_elbo, fitted_elbo, mixture_elbo
from paper.studies.output import Row
from paper.studies.softmax_posterior import (
    Estimate,
    elliptical_slices,
    estimate_log_evidence,
    fit_laplace,
    kernel_root,
    query_root,
)
from polyshot.errors import InputError
from polyshot.evaluation.metrics import accuracy, brier_score, reliability_bins
from polyshot.gp import (
    RBF,
    GPModel,
    LeastSquaresGP,
    LogisticSoftmaxGP,
    OneVsEachGP,
    Prior,
    Sites,
    Softmax,
    as_tensor,
    gibbs_states,
    predict,
    split_r_hat,
)

N_WAY, N_EACH = 3, 50
MODELS: dict[str, type[GPModel]] = {
    "gaussian": LeastSquaresGP,
    "logistic-softmax": LogisticSoftmaxGP,
    "one-vs-each": OneVsEachGP,
}
_DRAWS = {name: k for k, name in enumerate(("split", "softmax", *MODELS))}


@dataclass(frozen=True)
class Effort:
    """How many draws go into each posterior."""

    n_chains: int = 32
    n_steps: int = 8
    small_steps: int = 64  # used instead of n_steps up to `slices_up_to` examples per class
    n_weights: int = 1000
    slice_chains: int = 64
    slice_steps: int = 50
    slices_up_to: int = 5  # examples per class

    def __post_init__(self) -> None:
        """Refuse efforts too small for an estimate and its standard error."""
        if self.n_chains < 2 or min(self.n_steps, self.small_steps) < 4 or self.n_weights < self.n_chains:
            raise InputError(f"need at least 2 chains of 4 steps, and at least as many weights as chains, not {self}")
        if self.slice_chains < 2 or self.slice_steps < 8:
            raise InputError(f"need at least 2 slice chains of 8 steps, not {self}")


class Split(NamedTuple):
    """Training and test examples of one random split."""

    x: Float[Tensor, "n 2"]
    y: Int[Tensor, "n"]
    x_test: Float[Tensor, "q 2"]
    y_test: Int[Tensor, "q"]


class KernelTask(NamedTuple):
    """The kernel matrices of a split and of any query points."""

    K: Float[Tensor, "n n"]
    root: Float[Tensor, "n e"]
    y: Int[Tensor, "n"]
    K_star: Float[Tensor, "q n"]
    k_star_star: Float[Tensor, "q"]


class Outcome(NamedTuple):
    """One method's class probabilities by rule, its bounds by estimator, and how well its posterior was sampled."""

    probabilities: dict[str, Float[Tensor, "q 3"]]
    bounds: dict[str, Estimate]
    diagnostics: dict[str, float]


def iris_kernel() -> RBF:
    """exp(-|x - x'|^2 / 2). polyshot's RBF divides the squared distance by the dimension; the lengthscale undoes it."""
    return RBF(log_lengthscale=-math.log(2) / 2).double()


def make_split(size: int, split: int, seed: int) -> Split:
    """Choose `size` random examples of each class for training; all others are for testing."""
    if not 1 <= size < N_EACH:
        raise InputError(f"Iris has {N_EACH} examples per class: train on 1 to {N_EACH - 1}, not {size}")
    data = load_iris()
    generator = split_generator("split", size, split, seed)
    chosen = np.zeros(len(data.target), dtype=bool)
    for c in range(N_WAY):
        chosen[generator.choice(np.flatnonzero(data.target == c), size, replace=False)] = True
    x, y = as_tensor(data.data[:, :2].copy()), as_tensor(data.target)
    return Split(x[chosen], y[chosen], x[~chosen], y[~chosen])


@torch.no_grad()
def make_task(x: Float[Tensor, "n 2"], y: Int[Tensor, "n"], queries: Float[Tensor, "q 2"]) -> KernelTask:
    """Compute the kernel matrices of training examples and queries."""
    kernel = iris_kernel()
    K = kernel(x)
    return KernelTask(K, kernel_root(K), y, kernel(queries, x), kernel.diagonal(queries))


@torch.no_grad()
def model_posterior(name: str, task: KernelTask, effort: Effort, generator: np.random.Generator, ways: bool) -> Outcome:
    """Compute the posterior of one of MODELS; `ways` adds the ELBO of the two substitutes for q."""
    model = MODELS[name]()
    K, root, y, K_star, k_star_star = task
    gaussian = fit_laplace(model.likelihood, root, y, N_WAY)
    u = gaussian.draw(effort.n_weights, generator)
    log_weights = gaussian.log_weight(u)
    if isinstance(model, LeastSquaresGP):
        # The Gaussian at the mode is the posterior: all weights equal Z, and no chain is needed.
        f, sites, used = (root @ u)[None], model.sites(y, N_WAY), model.sites(y, N_WAY)
    else:
        n_steps = effort.small_steps if ways else effort.n_steps
        start = generator.choice(len(u), effort.n_chains, p=torch.softmax(log_weights, 0).numpy())
        f, sites = _chains(model, task, root @ u[start], n_steps, generator)
        used = Sites(*(part[n_steps // 2 - 1 :: n_steps // 2].flatten(0, 1) for part in sites))
    prediction = predict(model, K, y, used, K_star, k_star_star, rule="monte-carlo", n_draws=1024, seed=generator)
    bounds = {"evidence": evidence_elbo(model.likelihood, f, y, estimate_log_evidence(log_weights))}
    diagnostics = {"share of weights": _effective_share(log_weights)}
    if not isinstance(model, LeastSquaresGP):
        diagnostics["r_hat"] = float(split_r_hat(f).max())
        if ways:
            bounds["mixture"] = mixture_elbo(
                model, root, y, Sites(*(part[::8].flatten(0, 1) for part in sites)), generator
            )
            bounds["gaussian-fit"] = fitted_elbo(root, y, f, generator)
    probabilities = {"mean": model.likelihood.log_probs(prediction.scores).exp(), "full": prediction.log_probs.exp()}
    return Outcome(probabilities, bounds, diagnostics)


@torch.no_grad()
def softmax_posterior(task: KernelTask, effort: Effort, generator: np.random.Generator, slices: bool) -> Outcome:
    """The softmax GP itself: its log evidence; `slices` adds its posterior by elliptical slice sampling.

    "importance" estimates the log evidence from draws of the Laplace Gaussian and tends to be too low. "reciprocal"
    estimates it from draws of the posterior, by E[1 / weight] = 1 / p(Y | X), and tends to be too high.
    """
    softmax = Softmax()
    gaussian = fit_laplace(softmax, task.root, task.y, N_WAY)
    log_weights = gaussian.log_weight(gaussian.draw(effort.n_weights, generator))
    bounds, diagnostics = (
        {"importance": estimate_log_evidence(log_weights)},
        {"share of weights": _effective_share(log_weights)},
    )
    if not slices:
        return Outcome({}, bounds, diagnostics)
    u = elliptical_slices(gaussian, effort.slice_chains, effort.slice_steps, generator)[effort.slice_steps // 5 :]
    inverse = gaussian.log_weight(u.flatten(0, 1)).neg().reshape(u.shape[:2])
    reciprocal = estimate_log_evidence(torch.logsumexp(inverse, 0) - math.log(len(u)))
    bounds["reciprocal"] = Estimate(-reciprocal.value, reciprocal.error)
    diagnostics["r_hat"] = float(split_r_hat(u).max())
    root_star, variance = query_root(task.root, task.K_star, task.k_star_star)
    each = root_star @ u.flatten(0, 1)
    noise = as_tensor(generator.standard_normal(each.shape))
    full = softmax.log_probs(each + variance.sqrt()[:, None] * noise).exp().mean(0)
    probabilities = {"mean": softmax.log_probs(root_star @ u.mean((0, 1))).exp(), "full": full}
    return Outcome(probabilities, bounds, diagnostics)


def rival_probabilities(name: str, split: Split) -> Float[Tensor, "q 3"]:
    """Predict with one of RIVALS. scikit-learn's GP has the same kernel, but one-vs-rest and Laplace's posterior."""
    fitted = RIVALS[name].make().fit(split.x.numpy(), split.y.numpy())
    return as_tensor(fitted.predict_proba(split.x_test.numpy()))


def solve_split(size: int, split: int, seed: int, effort: Effort) -> dict[str, list[Row]]:
    """Run all methods on one split; returns rows of "predictions", "bounds" and "diagnostics"."""
    data = make_split(size, split, seed)
    task = make_task(data.x, data.y, data.x_test)
    small = size <= effort.slices_up_to
    posteriors = {
        name: model_posterior(name, task, effort, split_generator(name, size, split, seed), small) for name in MODELS
    }
    posteriors["softmax"] = softmax_posterior(task, effort, split_generator("softmax", size, split, seed), small)
    for name in RIVALS:
        posteriors[name] = Outcome({"full": rival_probabilities(name, data)}, {}, {})
    rows: dict[str, list[Row]] = {"predictions": [], "bounds": [], "diagnostics": []}
    for method, posterior in posteriors.items():
        here = {"size": size, "split": split, "method": method}
        rows["predictions"] += [
            {**here, "rule": rule, **_scores(probs, data.y_test)} for rule, probs in posterior.probabilities.items()
        ]
        rows["bounds"] += [{**here, "way": way, **bound._asdict()} for way, bound in posterior.bounds.items()]
        rows["diagnostics"] += [{**here, "name": name, "value": v} for name, v in posterior.diagnostics.items()]
    return rows


def _scores(probs: Tensor, y: Tensor) -> Row:
    """Scores of one split; "gaps", the sum of correct minus confidence per bin, is for ECE pooled over splits."""
    bins = reliability_bins(probs, y, n_bins=10)
    return {
        "accuracy": accuracy(probs, y),
        "brier": brier_score(probs, y),
        "ece": float(bins.gap @ bins.count / bins.count.sum()),
        "n_test": len(y),
        "gaps": np.nan_to_num((bins.accuracy - bins.confidence) * bins.count).tolist(),
    }


def _chains(
    model: GPModel, task: KernelTask, f: Float[Tensor, "m n c"], n_steps: int, generator: np.random.Generator
) -> tuple[Float[Tensor, "s m n c"], Sites]:
    """Gibbs from where importance sampling has found the posterior to be, so that there is nothing to burn in."""
    prior = Prior(task.K, task.root, torch.zeros_like(f[:1]))
    sites = model.draw_sites(f, task.y, [generator])
    states = islice(gibbs_states(model, prior, task.y, sites, [generator]), n_steps)
    steps, omega, kappa = (torch.stack(part) for part in zip(*((f, *sites) for f, sites in states), strict=True))
    return steps, Sites(omega, kappa)


def _effective_share(log_weights: Tensor) -> float:
    """Effective sample size of importance weights, divided by their number."""
    return float(1 / torch.softmax(log_weights, 0).square().sum() / len(log_weights))


def split_generator(what: str, size: int, split: int, seed: int) -> np.random.Generator:
    """A generator for each use, so that no result depends on what else is run, or where."""
    return np.random.default_rng([seed, size, split, _DRAWS[what]])
