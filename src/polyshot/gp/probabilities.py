"""Class probabilities of a query from the Gaussian posterior of its logits (Section 4.4).

Three named rules:

- "sigmoid": p(c) proportional to prod_c' E[sigmoid(f_c - f_c')], the paper's text;
- "log-sigmoid": p(c) proportional to exp sum_c' E[log sigmoid(f_c - f_c')], as in the authors' published code (which
  averages these logarithms over the chains where we average probabilities), and the default, because it has the best
  likelihood and calibration on real embeddings (docs/inference.md);
- "monte-carlo": E[L(f | c) / sum_c' L(f | c')] over draws of the joint Gaussian, for any likelihood and with no
  independence assumption. The draws are a randomised Sobol sequence, shared by the queries: unbiased, and with
  a few hundred points as good as thousands of independent ones.

For the logistic softmax the first two are E[sigmoid(f_c)] and exp E[log sigmoid(f_c)], normalised.

The paper takes the one-dimensional expectations by Gauss-Hermite quadrature, which is off by percents once the
standard deviation of a difference exceeds the sigmoid's width. Here the logistic distribution is written as a
mixture of normals (Monahan & Stefanski 1992), for which both expectations are closed form at any mean and variance,
with less work than 20 nodes: E[sigmoid] to 2e-8, E[log sigmoid] to 1e-7; log E[sigmoid] to 0.02 at worst, where it is
below -20.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import log_softmax
from torch.quasirandom import SobolEngine

from polyshot.errors import InputError
from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.compiled.expectations import expected_log_sigmoids, log_expected_sigmoids, mean_one_vs_each
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.likelihoods import Likelihood, LogisticSoftmax, OneVsEach
from polyshot.gp.models.base import GPModel, chain_chunks
from polyshot.gp.models.posterior import Logits, Mean, Sites, cholesky
from polyshot.gp.seeds import Seeds, as_generators
from polyshot.gp.validation import check_query, check_sites, check_task
from polyshot.task import Prediction

Rule = Literal["sigmoid", "log-sigmoid", "monte-carlo"]

# sigmoid(x) = sum_k p_k Phi(s_k x) to 1.3e-8 for all x (minimax fit; sums to one).
_MIXTURE_P = (
    0.003548876277896673,
    0.05468716418699312,
    0.20545227910513655,
    0.33501985509268495,
    0.27366500560962087,
    0.10526494523203242,
    0.020441233512455394,
    0.0019206409831799723,
)
_MIXTURE_S = (
    0.25199662496899483,
    0.33354430439563987,
    0.43709190262924263,
    0.5709280437600096,
    0.738335190674238,
    0.9343464509716165,
    1.1425263081423458,
    1.39702485267006,
)


def log_expected_sigmoid(mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log E[sigmoid(x)] for x ~ N(mean, variance)."""
    result: Tensor = _Expectation.apply(mean, variance, log_expected_sigmoids)  # type: ignore[no-untyped-call]
    return result


def expected_log_sigmoid(mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """E[log sigmoid(x)] for x ~ N(mean, variance)."""
    result: Tensor = _Expectation.apply(mean, variance, expected_log_sigmoids)  # type: ignore[no-untyped-call]
    return result


def log_expected_sigmoid_slopes(
    mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """log E[sigmoid(x)] and its derivatives with respect to the mean and the variance."""
    return _evaluate(log_expected_sigmoids, mean, variance, slopes=True)


class _Expectation(torch.autograd.Function):
    """An expectation under N(mean, variance) with its derivatives, all from one compiled pass."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor, compiled: Callable[..., int]) -> Tensor:
        value, *slopes = _evaluate(compiled, mean, variance, slopes=any(ctx.needs_input_grad))
        ctx.save_for_backward(*slopes)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        by_mean, by_variance = ctx.saved_tensors
        return grad * by_mean, grad * by_variance, None


def _evaluate(
    compiled: Callable[..., int], mean: Tensor, variance: Tensor, slopes: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Value and derivatives (empty without `slopes`) by a compiled loop over the entries."""
    m, v = as_array(mean.double()).ravel(), as_array(variance.double()).ravel()
    value = np.empty_like(m)
    by_mean, by_variance = np.empty_like(m if slopes else m[:0]), np.empty_like(m if slopes else m[:0])
    p, s = np.array(_MIXTURE_P), np.array(_MIXTURE_S)
    in_threads(lambda first, last: compiled(m, v, p, s, first, last, value, by_mean, by_variance), len(m), 400)
    shape = mean.shape if slopes else torch.Size([0])
    return (
        as_tensor(value).to(mean).reshape(mean.shape),
        as_tensor(by_mean).to(mean).reshape(shape),
        as_tensor(by_variance).to(mean).reshape(shape),
    )


def class_log_probs(
    logits: Logits,
    likelihood: Likelihood,
    rule: Rule = "log-sigmoid",
    *,
    noise: Float[Tensor, "*batch m s c"] | None = None,
) -> Float[Tensor, "*batch m q c"]:
    """Log class probabilities of each query and chain; `noise` is standard normal, for "monte-carlo"."""
    if rule == "monte-carlo":
        if noise is None:
            raise InputError("the rule 'monte-carlo' needs standard normal noise [..., M, S, C]")
        *chains, _, n_way = logits.mean.shape
        if (*noise.shape[:-2], noise.shape[-1]) != (*chains, n_way):
            raise InputError(f"the noise must be {[*chains, 'S', n_way]}; its shape is {tuple(noise.shape)}")
        if _compiles(logits, likelihood):
            return _compiled_monte_carlo(logits, noise)
        spread = noise[..., None, :, :] @ _root(logits.covariance).mT
        log_probs = likelihood.log_probs(logits.mean[..., :, None, :] + spread)
        return torch.logsumexp(log_probs, -2) - math.log(noise.shape[-2])
    if rule not in ("sigmoid", "log-sigmoid"):
        raise InputError(f"unknown rule {rule!r}; there are 'sigmoid', 'log-sigmoid' and 'monte-carlo'")
    if isinstance(likelihood, LogisticSoftmax):
        expectation = expected_log_sigmoid if rule == "log-sigmoid" else log_expected_sigmoid
        return log_softmax(expectation(logits.mean, logits.covariance.diagonal(dim1=-2, dim2=-1)), -1)
    if not isinstance(likelihood, OneVsEach):
        raise InputError(f"the rule {rule!r} is for one-vs-each and the logistic softmax; use 'monte-carlo'")
    # Each pair of classes i < j once, for both of its comparisons.
    n_way = logits.mean.shape[-1]
    i, j = torch.triu_indices(n_way, n_way, 1, device=logits.mean.device)
    difference = logits.mean[..., i] - logits.mean[..., j]
    own = logits.covariance.diagonal(dim1=-2, dim2=-1)
    variance = (own[..., i] + own[..., j] - 2 * logits.covariance[..., i, j]).clamp(min=0)
    if rule == "log-sigmoid":
        i_over_j = expected_log_sigmoid(difference, variance)
        j_over_i = i_over_j - difference  # log sigmoid(-x) = log sigmoid(x) - x
    else:
        lower = log_expected_sigmoid(torch.where(difference < 0, difference, -difference), variance)
        upper = torch.log1p(-lower.exp())
        i_over_j = torch.where(difference < 0, lower, upper)
        j_over_i = torch.where(difference < 0, upper, lower)
    if likelihood.weights is not None:
        weights = likelihood.weights.to(difference)
        i_over_j, j_over_i = weights[i, j] * i_over_j, weights[j, i] * j_over_i
    total = torch.zeros_like(logits.mean).index_add(-1, i, i_over_j).index_add(-1, j, j_over_i)
    return log_softmax(total, -1)


def predict(
    model: GPModel,
    K: Float[Tensor, "*batch n n"],
    y: Int[Tensor, "*batch n"],
    sites: Sites,
    K_star: Float[Tensor, "*batch q n"],
    k_star_star: Float[Tensor, "*batch q"],
    *,
    mean: Mean = 0.0,
    mean_star: Mean = 0.0,
    rule: Rule = "log-sigmoid",
    n_draws: int = 512,
    seed: Seeds = None,
) -> Prediction:
    """Predict the queries given draws of the sites; probabilities, not log-probabilities, are averaged.

    `rule="monte-carlo"` deals out `n_draws` points to the chains, 8 to each at least, from `seed` (one, or one a task).
    """
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
    return Prediction(torch.logsumexp(each, -3) - math.log(each.shape[-3]), scores, variance.mean(-1))


def sobol_normal(
    seed: Seeds, batch: torch.Size, n_chains: int, n_draws: int, n_way: int, like: Tensor
) -> Float[Tensor, "*batch m s c"]:
    """Standard normal points of a scrambled Sobol sequence, one a task, `n_draws` in all dealt out to the chains."""
    if n_draws < 1:
        raise InputError(f"n_draws must be at least 1, not {n_draws}")
    each = max(8, math.ceil(n_draws / n_chains))
    points = []
    for generator in as_generators(seed, batch.numel()):
        scramble = int(generator.integers(2**31))
        engine = SobolEngine(n_way, scramble=True, seed=scramble)  # type: ignore[no-untyped-call]
        uniform = engine.draw(n_chains * each, dtype=torch.float64)
        points.append(torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12)))
    # Neighbours in the sequence go to different chains, so that any run of chains has well spread points.
    return torch.stack(points).to(like).reshape(*batch, each, n_chains, n_way).movedim(-2, -3)


def _compiles(logits: Logits, likelihood: Likelihood) -> bool:
    """Whether the compiled average serves: unit-weight one-vs-each, and no gradient wanted."""
    wanted = torch.is_grad_enabled() and (logits.mean.requires_grad or logits.covariance.requires_grad)
    return isinstance(likelihood, OneVsEach) and likelihood.weights is None and not wanted


def _compiled_monte_carlo(logits: Logits, noise: Tensor) -> Tensor:
    n_query, n_way = logits.mean.shape[-2:]
    mean, root = as_array(logits.mean.reshape(-1, n_way)), as_array(_root(logits.covariance).reshape(-1, n_way, n_way))
    points = as_array(noise.reshape(-1, *noise.shape[-2:]))
    out = np.empty_like(mean)
    in_threads(
        lambda first, last: mean_one_vs_each(mean, root, points, n_query, first, last, out),
        len(out),
        4 * n_way**2 * points.shape[1],
    )
    return as_tensor(out).to(logits.mean).clamp(min=1e-300).log().reshape(logits.mean.shape)


def _root(covariance: Float[Tensor, "*batch c c"]) -> Float[Tensor, "*batch c c"]:
    """Cholesky factor of a covariance that may be singular."""
    scale = covariance.diagonal(dim1=-2, dim2=-1).amax(-1).clamp(min=1e-30)[..., None, None]
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    return cholesky(covariance + 1e-9 * scale.detach() * identity)
