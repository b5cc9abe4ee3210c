"""The two training objectives of Section 4.5, to be maximised; autograd differentiates both.

The Gibbs chains run without gradients. What is differentiated is log p(Y | X, sites) at their last step, averaged over
the chains (Fisher's identity), or log p(y_* | x_*, S), for which the chains' probabilities are averaged.
"""

import math
from typing import Any, Literal, get_args

from torch import Tensor
from torch.nn.functional import log_softmax

from polyshot.errors import InputError
from polyshot.gp.inference.gibbs import Prior, Start, draw_probes, gibbs
from polyshot.gp.kernels import Kernel
from polyshot.gp.likelihoods import Rule
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.posterior import Sites, psd_root
from polyshot.gp.probabilities import class_log_probs, sobol_normal
from polyshot.gp.seeds import Seeds, as_generators
from polyshot.gp.shapes import Features, Labels, Mean, PerTask, QueryFeatures, QueryLabels
from polyshot.gp.validation import check_labels, check_query, check_task

Slope = Literal["exact", "sampled"]
Average = Literal["probability", "log", "score"]


def marginal_likelihood(
    model: GPModel,
    kernel: Kernel,
    x: Features,
    y: Labels,
    n_way: int,
    *,
    n_chains: int = 20,
    n_steps: int = 1,
    start: Start = "prior",
    mean: Mean = 0.0,
    slope: Slope = "exact",
    seed: Seeds = None,
) -> PerTask:
    """L_ML: log p(Y | X, sites), averaged over the chains.

    Parameters
    ----------
    model, kernel : GPModel, Kernel
        The classifier and its covariance function.
    x, y : Tensor
        Features [*batch, N, D] and labels [*batch, N]; in the paper, support and query together.
    n_way : int
        The number of classes.
    n_chains, n_steps, start, mean, seed
        As in `gibbs`.
    slope : {"exact", "sampled"}
        "sampled" replaces the exact derivative of the log-determinant with respect to K by one draw per chain. It is
        unbiased, several times faster for the one-vs-each GP, and noisy, as the chains' sites themselves are.
    """
    if slope not in ("exact", "sampled"):
        raise InputError(f"unknown slope {slope!r}; choose from exact, sampled")
    K, y = check_task(kernel(x), y, n_way)
    generators = as_generators(seed, y.shape[:-1].numel())
    root = psd_root(K.detach())
    settings: dict[str, Any] = {"n_chains": n_chains, "n_steps": n_steps, "start": start, "root": root}
    sites = _last_sites(model, K, y, n_way, mean, generators, **settings)
    probes = None
    if slope == "sampled":
        centred = Prior(K.detach(), root, root.new_zeros(*y.shape[:-1], 1, y.shape[-1], n_way))
        probes = draw_probes(model, centred, y, sites.omega, generators)
    return model.log_marginal(K, y, sites, mean, probes).mean(-1)


def predictive_likelihood(
    model: GPModel,
    kernel: Kernel,
    x: Features,
    y: Labels,
    x_query: QueryFeatures,
    y_query: QueryLabels,
    n_way: int,
    *,
    n_chains: int = 20,
    n_steps: int = 1,
    start: Start = "prior",
    mean: Mean = 0.0,
    rule: Rule | None = None,
    average: Average = "probability",
    n_draws: int = 512,
    seed: Seeds = None,
) -> PerTask:
    """L_PL: the sum over the queries of log p(y_* | x_*, S).

    Parameters
    ----------
    model, kernel : GPModel, Kernel
        The classifier and its covariance function.
    x, y, x_query, y_query : Tensor
        Features and labels of the support set and of the queries.
    n_way : int
        The number of classes.
    n_chains, n_steps, start, mean, seed
        As in `gibbs`.
    rule, n_draws
        As in `predict`.
    average : {"probability", "log", "score"}
        What is averaged over the chains: p(y_* | x_*, S, sites), as L_PL says and as a prediction does, or its
        logarithm, the paper's approximation. The latter is a lower bound. It is loose where the few sites of a chain
        matter, that is with one shot. "score" averages the logarithms of all classes and then normalises them once, as
        the paper's public code does.
    """
    if average not in get_args(Average):
        raise InputError(f"unknown average {average!r}; choose from {', '.join(get_args(Average))}")
    rule = model.likelihood.default_rule if rule is None else rule
    K, y = check_task(kernel(x), y, n_way)
    y_query = check_labels("query labels", y_query, n_way)
    if y_query.shape != x_query.shape[:-1]:
        raise InputError(
            f"queries of shape {tuple(x_query.shape)} need labels of shape {tuple(x_query.shape[:-1])}; "
            f"theirs is {tuple(y_query.shape)}"
        )
    generators = as_generators(seed, y.shape[:-1].numel())
    sites = _last_sites(model, K, y, n_way, mean, generators, n_chains=n_chains, n_steps=n_steps, start=start)
    K_star, k_star_star = check_query(K, kernel(x_query, x), kernel.diagonal(x_query))
    logits = model.query(K, y, sites, K_star, k_star_star, mean)
    noise = sobol_normal(generators, y.shape[:-1], n_chains, n_draws, n_way, K) if rule == "monte-carlo" else None
    log_probs = class_log_probs(logits, model.likelihood, rule, noise=noise)
    if average == "score":
        log_probs = log_softmax(log_probs.mean(-3, keepdim=True), -1)
    labels = y_query[..., None, :, None].expand(*log_probs.shape[:-1], 1)
    chosen = log_probs.gather(-1, labels).squeeze(-1)  # [*batch, chain, query]
    if average == "log":
        return chosen.mean(-2).sum(-1)
    return (chosen.logsumexp(-2) - math.log(chosen.shape[-2])).sum(-1)


def _last_sites(model: GPModel, K: Tensor, y: Tensor, n_way: int, mean: Mean, seed: Seeds, **options: Any) -> Sites:
    """The sites of the chains' last step; gradients reach only the model's own parameters through them."""
    mean = mean.detach() if isinstance(mean, Tensor) else mean
    chain = gibbs(model, K.detach(), y, n_way, mean=mean, latent=False, seed=seed, **options)
    return model.with_gradient(chain.draws, y)
