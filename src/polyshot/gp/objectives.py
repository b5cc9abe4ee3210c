"""The two objectives of Section 4.5, to be maximised: functions of a kernel and a task that autograd differentiates.

The Gibbs chains run without gradients; what is differentiated is log p(Y | X, sites) at their last step, averaged over
the chains (Fisher's identity), or log p(y_* | x_*, S), for which the chains' probabilities are averaged.
"""

import math
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.inference.gibbs import Prior, Start, draw_probes, gibbs
from polyshot.gp.kernels import Kernel
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.posterior import Mean, Sites, psd_root
from polyshot.gp.probabilities import Rule, class_log_probs, sobol_normal
from polyshot.gp.seeds import Seeds, as_generators
from polyshot.gp.validation import check_labels, check_query, check_task

Slope = Literal["exact", "sampled"]
Average = Literal["probability", "log"]


def marginal_likelihood(
    model: GPModel,
    kernel: Kernel,
    x: Float[Tensor, "*batch n d"],
    y: Int[Tensor, "*batch n"],
    n_way: int,
    *,
    n_chains: int = 20,
    n_steps: int = 1,
    start: Start = "prior",
    mean: Mean = 0.0,
    slope: Slope = "exact",
    seed: Seeds = None,
) -> Float[Tensor, "*batch"]:
    """L_ML: log p(Y | X, sites) averaged over chains; `x` is support and query together, as the paper trains.

    slope: "sampled" puts one draw a chain in place of the log-determinant's exact derivative in K: unbiased, a few
    times faster for the one-vs-each GP, and noisy, as the chains' sites are themselves.
    """
    if slope not in ("exact", "sampled"):
        raise InputError(f"the slope is 'exact' or 'sampled', not {slope!r}")
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
    x: Float[Tensor, "*batch n d"],
    y: Int[Tensor, "*batch n"],
    x_query: Float[Tensor, "*batch q d"],
    y_query: Int[Tensor, "*batch q"],
    n_way: int,
    *,
    n_chains: int = 20,
    n_steps: int = 1,
    start: Start = "prior",
    mean: Mean = 0.0,
    rule: Rule = "log-sigmoid",
    average: Average = "probability",
    n_draws: int = 512,
    seed: Seeds = None,
) -> Float[Tensor, "*batch"]:
    """L_PL: sum over the queries of log p(y_* | x_*, S).

    average: of the chains' p(y_* | x_*, S, sites), the "probability", which is what L_PL says and a prediction does, or
    its "log", the paper's approximation. That is a lower bound, loose where a chain's few sites decide: at one shot.
    """
    if average not in ("probability", "log"):
        raise InputError(f"the average is of 'probability' or 'log', not {average!r}")
    K, y = check_task(kernel(x), y, n_way)
    y_query = check_labels("query labels", y_query, n_way)
    if y_query.shape != x_query.shape[:-1]:
        raise InputError(f"{tuple(y_query.shape)} query labels for queries of shape {tuple(x_query.shape)}")
    generators = as_generators(seed, y.shape[:-1].numel())
    sites = _last_sites(model, K, y, n_way, mean, generators, n_chains=n_chains, n_steps=n_steps, start=start)
    K_star, k_star_star = check_query(K, kernel(x_query, x), kernel.diagonal(x_query))
    logits = model.query(K, y, sites, K_star, k_star_star, mean)
    noise = sobol_normal(generators, y.shape[:-1], n_chains, n_draws, n_way, K) if rule == "monte-carlo" else None
    log_probs = class_log_probs(logits, model.likelihood, rule, noise=noise)
    labels = y_query[..., None, :, None].expand(*log_probs.shape[:-1], 1)
    chosen = log_probs.gather(-1, labels).squeeze(-1)  # [*batch, chain, query]
    if average == "log":
        return chosen.mean(-2).sum(-1)
    return (chosen.logsumexp(-2) - math.log(chosen.shape[-2])).sum(-1)


def _last_sites(model: GPModel, K: Tensor, y: Tensor, n_way: int, mean: Mean, seed: Seeds, **options: Any) -> Sites:
    """The sites of the chains' last step, which no gradient passes through but that of the model's own parameters."""
    mean = mean.detach() if isinstance(mean, Tensor) else mean
    chain = gibbs(model, K.detach(), y, n_way, mean=mean, latent=False, seed=seed, **options)
    return model.with_gradient(chain.draws, y)
