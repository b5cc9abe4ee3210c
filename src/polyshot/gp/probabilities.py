"""Class probabilities of queries, averaged over the chains, by a predictive rule of the likelihood (Section 4.4)."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import log_softmax
from torch.quasirandom import SobolEngine

from polyshot.errors import InputError
from polyshot.gp.likelihoods import Likelihood, Rule
from polyshot.gp.models.base import GPModel, chain_chunks
from polyshot.gp.models.posterior import Logits, Sites
from polyshot.gp.seeds import Seeds, as_generators
from polyshot.gp.shapes import KernelMatrix, Labels, Mean, NormalPoints, QueryCovariances, QueryLogits, QueryVariances
from polyshot.gp.validation import check_positive_count, check_query, check_sites, check_task
from polyshot.task import Prediction


def class_log_probs(
    logits: Logits, likelihood: Likelihood, rule: Rule | None = None, *, noise: NormalPoints | None = None
) -> QueryLogits:
    """Log class probabilities of each query and chain.

    Parameters
    ----------
    logits : Logits
        The Gaussian posterior of the query logits.
    likelihood : Likelihood
        The likelihood, which owns the rules.
    rule : {"sigmoid", "log-sigmoid", "monte-carlo"}, optional
        The predictive rule; by default that of the likelihood.
    noise : Tensor [*batch, M, S, C], optional
        Standard normal points, which "monte-carlo" needs.
    """
    rule = likelihood.default_rule if rule is None else rule
    if rule not in get_args(Rule):
        raise InputError(f"unknown rule {rule!r}; choose from {', '.join(get_args(Rule))}")
    if rule != "monte-carlo":
        return likelihood.closed_form_log_probs(logits, rule)
    if noise is None:
        raise InputError("the rule 'monte-carlo' needs standard normal noise [..., M, S, C]")
    *chains, _, n_way = logits.mean.shape
    if (*noise.shape[:-2], noise.shape[-1]) != (*chains, n_way):
        raise InputError(f"the noise must be {[*chains, 'S', n_way]}; its shape is {tuple(noise.shape)}")
    return likelihood.monte_carlo_log_probs(logits, noise)


def predict(
    model: GPModel,
    K: KernelMatrix,
    y: Labels,
    sites: Sites,
    K_star: QueryCovariances,
    k_star_star: QueryVariances,
    *,
    mean: Mean = 0.0,
    mean_star: Mean = 0.0,
    rule: Rule | None = None,
    average: Literal["probability", "score"] = "probability",
    n_draws: int = 512,
    seed: Seeds = None,
) -> Prediction:
    """Predict the classes of queries from draws of the sites.

    Parameters
    ----------
    model : GPModel
        The classifier.
    K, y : Tensor
        Kernel matrix [*batch, N, N] and labels [*batch, N] of the support set.
    sites : Sites
        Sites [*batch, M, N, C] from `gibbs`, `fit_propagation` or `fit_variational`.
    K_star, k_star_star : Tensor
        Covariances of the queries with the support set [*batch, Q, N], and the queries' own variances [*batch, Q].
    mean, mean_star : float or Tensor
        Prior mean of the support set's logits and of the queries' logits.
    rule : {"sigmoid", "log-sigmoid", "monte-carlo"}, optional
        The predictive rule (polyshot.gp.likelihoods); by default that of the likelihood.
    average : {"probability", "score"}
        What is averaged over the chains: probabilities, or log-probabilities, which are then normalised once.
    n_draws : int
        Points of the rule "monte-carlo", shared out among the chains; each gets at least 8.
    seed : int, Generator or a sequence of them
        Where these points come from: one seed, or one per task.

    Returns
    -------
    Prediction
        Log-probabilities, mean logits, and the variance of the logits averaged over the classes.

    Examples
    --------
    >>> import torch
    >>> from polyshot.gp import Cosine, OneVsEachGP, fit_propagation, predict
    >>> x, y, queries = torch.eye(4), torch.tensor([0, 0, 1, 1]), torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    >>> kernel, model = Cosine(log_scale=2.0), OneVsEachGP()
    >>> K, K_star, k_star_star = kernel(x).detach(), kernel(queries, x).detach(), kernel.diagonal(queries).detach()
    >>> sites = fit_propagation(model, K, y, n_way=2).sites
    >>> int(predict(model, K, y, sites, K_star, k_star_star).log_probs.argmax())
    0
    """
    rule = model.likelihood.default_rule if rule is None else rule
    n_way = sites.omega.shape[-1]
    K, y = check_task(K, y, n_way)
    check_sites(K, sites.omega, sites.kappa)
    K_star, k_star_star = check_query(K, K_star, k_star_star)
    noise = (
        sobol_normal(seed, y.shape[:-1], sites.omega.shape[-3], n_draws, n_way, K) if rule == "monte-carlo" else None
    )
    log_probs, means, variances, done = [], [], [], 0
    for chunk in chain_chunks(sites, k_star_star.shape[-1]):
        logits = model.condition(K, y, chunk, mean).query(K_star, k_star_star, mean_star)
        size = logits.mean.shape[-3]
        part = None if noise is None else noise[..., done : done + size, :, :]
        log_probs.append(class_log_probs(logits, model.likelihood, rule, noise=part))
        means.append(logits.mean)
        variances.append(logits.covariance.diagonal(dim1=-2, dim2=-1))
        done += size
    each, mean = torch.cat(log_probs, -3), torch.cat(means, -3)
    scores = mean.mean(-3)
    variance = torch.cat(variances, -3).mean(-3) + (mean - scores[..., None, :, :]).square().mean(-3)
    together = log_softmax(each.mean(-3), -1) if average == "score" else each.logsumexp(-3) - math.log(each.shape[-3])
    return Prediction(together, scores, variance.mean(-1))


def sobol_normal(seed: Seeds, batch: torch.Size, n_chains: int, n_draws: int, n_way: int, like: Tensor) -> NormalPoints:
    """Draw standard normal points from a scrambled Sobol sequence, one sequence per task.

    They are unbiased, and a few hundred are as good as thousands of independent ones. The queries of a task share them.
    The `n_draws` points are shared out among the chains; each gets at least 8.
    """
    check_positive_count("n_draws", n_draws)
    each = max(8, math.ceil(n_draws / n_chains))
    points = []
    for generator in as_generators(seed, batch.numel()):
        scramble = int(generator.integers(2**31))
        engine = SobolEngine(n_way, scramble=True, seed=scramble)  # type: ignore[no-untyped-call]
        uniform = engine.draw(n_chains * each, dtype=torch.float64)
        points.append(torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12)))
    # Neighbours in the sequence go to different chains, so that any group of chains has well-spread points.
    return torch.stack(points).to(like).reshape(*batch, each, n_chains, n_way).movedim(-2, -3)
