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
from polyshot.gp.inference.propagation import fit_propagation, log_evidence
from polyshot.gp.inference.propagation_gradient import propagation_logits
from polyshot.gp.kernels import Kernel
from polyshot.gp.likelihoods import Rule
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.one_vs_each import check_one_vs_each
from polyshot.gp.models.posterior import Sites, psd_root
from polyshot.gp.probabilities import class_log_probs, sobol_normal
from polyshot.gp.seeds import Seeds, as_generators
from polyshot.gp.shapes import Features, Labels, Mean, PerTask, QueryFeatures, QueryLabels
from polyshot.gp.validation import check_labels, check_query, check_task

Slope = Literal["exact", "sampled"]
Average = Literal["probability", "log", "score"]
SiteSource = Literal["chains", "propagation"]
_TOLERANCE = 1e-3  # of expectation propagation


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
    sites: SiteSource = "chains",
    seed: Seeds = None,
) -> PerTask:
    """L_ML: log p(Y | X, sites), averaged over the chains; or the evidence of expectation propagation.

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
    sites : {"chains", "propagation"}
        "propagation" is for the one-vs-each GP, and deterministic: log p(Y | X) by expectation propagation. Of the
        other options it uses the mean only.
    """
    _check_choice("slope", slope, Slope)
    _check_choice("sites", sites, SiteSource)
    K, y = check_task(kernel(x), y, n_way)
    if sites == "propagation":
        model = check_one_vs_each(model)
        found = fit_propagation(model, K.detach(), y, n_way, mean=_detached(mean), tolerance=_TOLERANCE)
        return log_evidence(model, K, y, found, mean)
    generators = as_generators(seed, y.shape[:-1].numel())
    root = psd_root(K.detach())
    settings: dict[str, Any] = {"n_chains": n_chains, "n_steps": n_steps, "start": start, "root": root}
    drawn = _last_sites(model, K, y, n_way, mean, generators, **settings)
    probes = None
    if slope == "sampled":
        centred = Prior(K.detach(), root, root.new_zeros(*y.shape[:-1], 1, y.shape[-1], n_way))
        probes = draw_probes(model, centred, y, drawn.omega, generators)
    return model.log_marginal(K, y, drawn, mean, probes).mean(-1)


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
    sites: SiteSource = "chains",
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
    sites : {"chains", "propagation"}
        "propagation" is for the one-vs-each GP with a prior mean of zero: one set of sites by expectation propagation,
        which takes part in the gradient. There is then nothing to average, and only "monte-carlo" draws anything.
    """
    _check_choice("average", average, Average)
    _check_choice("sites", sites, SiteSource)
    rule = model.likelihood.default_rule if rule is None else rule
    K, y = check_task(kernel(x), y, n_way)
    y_query = check_labels("query labels", y_query, n_way)
    if y_query.shape != x_query.shape[:-1]:
        raise InputError(
            f"queries of shape {tuple(x_query.shape)} need labels of shape {tuple(x_query.shape[:-1])}; "
            f"theirs is {tuple(y_query.shape)}"
        )
    generators = as_generators(seed, y.shape[:-1].numel())
    covariances = check_query(K, kernel(x_query, x), kernel.diagonal(x_query))
    if sites == "propagation":
        if isinstance(mean, Tensor) or mean != 0.0:
            raise InputError("sites='propagation' needs a prior mean of zero; use sites='chains'")
        logits = propagation_logits(check_one_vs_each(model), K, y, *covariances, n_way, tolerance=_TOLERANCE)
    else:
        drawn = _last_sites(model, K, y, n_way, mean, generators, n_chains=n_chains, n_steps=n_steps, start=start)
        logits = model.query(K, y, drawn, *covariances, mean)
    n_chains = logits.mean.shape[-3]
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
    chain = gibbs(model, K.detach(), y, n_way, mean=_detached(mean), latent=False, seed=seed, **options)
    return model.with_gradient(chain.draws, y)


def _detached(mean: Mean) -> Mean:
    return mean.detach() if isinstance(mean, Tensor) else mean


def _check_choice(name: str, value: str, choices: Any) -> None:
    if value not in get_args(choices):
        raise InputError(f"unknown {name} {value!r}; choose from {', '.join(get_args(choices))}")
