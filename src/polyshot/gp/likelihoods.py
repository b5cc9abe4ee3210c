"""The four likelihoods of Section 5.1 over class logits f, and their predictive rules (Section 4.4).

Each likelihood has `log_likelihood(f, y)`, log L(f | y), which for Gaussian and one-vs-each does not sum to one over y,
and `log_probs(f)`, the same normalised over the classes. Both are finite for logits of +-1e4 and beyond.

A predictive rule turns the Gaussian posterior of a query's logits into class probabilities:

- "sigmoid": p(c) proportional to prod_c' E[sigmoid(f_c - f_c')], as in the paper's text;
- "log-sigmoid": p(c) proportional to exp sum_c' E[log sigmoid(f_c - f_c')], as in the authors' published code (which
  averages these logarithms over the chains, where we average probabilities). It is the default because it has the best
  likelihood and calibration on real embeddings (docs/inference.md);
- "monte-carlo": E[L(f | c) / sum_c' L(f | c')] over draws of the joint Gaussian, for any likelihood and with no
  independence assumption.

For the logistic softmax the first two are E[sigmoid(f_c)] and exp E[log sigmoid(f_c)], normalised.

To add a likelihood, subclass `Likelihood`, set `title` and write `log_all`. Monte Carlo prediction then works. For the
other two rules also write `closed_form_log_probs`. Register it with `LIKELIHOODS.register("my-name", MyLikelihood)`, or
offer it from an installed package through the entry-point group "polyshot.likelihoods".
"""

import math
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid

from polyshot.errors import InputError
from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.compiled.expectations import mean_one_vs_each
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.models.posterior import Logits, cholesky
from polyshot.gp.shapes import LogitVectors, NormalPoints, QueryLogits
from polyshot.gp.sigmoid_expectations import expected_log_sigmoid, log_expected_sigmoid
from polyshot.system.registry import Registry

Rule = Literal["sigmoid", "log-sigmoid", "monte-carlo"]


class Likelihood:
    """Base class of all likelihoods.

    Attributes
    ----------
    title : str
        The likelihood's name in tables and figures.
    default_rule : str
        The predictive rule that is used when none is asked for.
    """

    title: ClassVar[str]
    default_rule: ClassVar[Rule] = "monte-carlo"

    def log_all(self, f: LogitVectors) -> LogitVectors:
        """Log L(f | y = c) for every class c."""
        raise NotImplementedError

    def log_likelihood(self, f: LogitVectors, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Log L(f | y) of the label."""
        return self.log_all(f).gather(-1, y[..., None]).squeeze(-1)

    def log_probs(self, f: LogitVectors) -> LogitVectors:
        """Log class probabilities: the likelihood normalised over the classes."""
        return log_softmax(self.log_all(f), -1)

    def closed_form_log_probs(self, logits: Logits, rule: Rule) -> QueryLogits:
        """Log class probabilities of each query and chain by the rule "sigmoid" or "log-sigmoid"."""
        raise InputError(f"the rule {rule!r} has no closed form for {type(self).__name__}; use rule='monte-carlo'")

    def monte_carlo_log_probs(self, logits: Logits, noise: NormalPoints) -> QueryLogits:
        """Log class probabilities of each query and chain, averaged over logits made from standard normal noise."""
        spread = noise[..., None, :, :] @ _root(logits.covariance).mT
        log_probs = self.log_probs(logits.mean[..., :, None, :] + spread)
        return torch.logsumexp(log_probs, -2) - math.log(noise.shape[-2])


class Softmax(Likelihood):
    """exp(f_c) / sum exp(f)."""

    title = "Softmax"

    def log_all(self, f: LogitVectors) -> LogitVectors:
        """Log-softmax."""
        return log_softmax(f, -1)


class Gaussian(Likelihood):
    """Independent N(+1 | f_c, s^2) for the label's class and N(-1 | f_c', s^2) for the others.

    Parameters
    ----------
    noise : float or Tensor
        The noise variance s^2.
    """

    title = "Gaussian"

    def __init__(self, noise: float | Float[Tensor, ""] = 1.0) -> None:
        if not noise > 0:
            raise InputError(f"the noise variance must be positive, not {noise}")
        self.noise = noise

    def log_all(self, f: LogitVectors) -> LogitVectors:
        """Sum of the C log-densities."""
        rest = ((f + 1) ** 2).sum(-1, keepdim=True)
        # (f_c - 1)^2 replaces (f_c + 1)^2 for the label's class
        squared = rest - 4 * f
        noise = torch.as_tensor(self.noise).to(f)
        return -squared / (2 * noise) - f.shape[-1] / 2 * torch.log(2 * math.pi * noise)

    def log_probs(self, f: LogitVectors) -> LogitVectors:
        """Log-softmax of 2 f / s^2: the terms that all classes share cancel."""
        return log_softmax(2 * f / self.noise, -1)


class LogisticSoftmax(Likelihood):
    """sigmoid(f_c) / sum sigmoid(f), of Galy-Fajou et al. (2020)."""

    title = "Logistic softmax"
    default_rule = "log-sigmoid"

    def log_all(self, f: LogitVectors) -> LogitVectors:
        """Log-softmax of the log-sigmoids."""
        return log_softmax(logsigmoid(f), -1)

    def closed_form_log_probs(self, logits: Logits, rule: Rule) -> QueryLogits:
        """E[sigmoid(f_c)] or exp E[log sigmoid(f_c)], normalised."""
        expectation = expected_log_sigmoid if rule == "log-sigmoid" else log_expected_sigmoid
        return log_softmax(expectation(logits.mean, logits.covariance.diagonal(dim1=-2, dim2=-1)), -1)


class OneVsEach(Likelihood):
    """Product over the other classes of sigmoid(f_c - f_c'), of Titsias (2016).

    It is a composite likelihood of pairwise conditional events (Section 4.1).

    Parameters
    ----------
    weights : Tensor [C, C], optional
        The comparison of label c with class c' is raised to the power weights[c, c'] >= 0; all are one by default. Zero
        leaves a comparison out. Every label needs one with a weight above zero.
    """

    title = "One-vs-each"
    default_rule = "log-sigmoid"

    def __init__(self, weights: Float[Tensor, "c c"] | None = None) -> None:
        if weights is not None and (weights.ndim != 2 or weights.shape[0] != weights.shape[1]):
            raise InputError(f"pairwise weights must be [C, C]; their shape is {tuple(weights.shape)}")
        if weights is not None and not bool((torch.isfinite(weights) & (weights >= 0)).all()):
            raise InputError("pairwise weights must be finite and not negative")
        if weights is not None and not bool((weights.sum(-1) > weights.diagonal()).all()):
            raise InputError("every label needs a comparison with another class whose weight is above zero")
        self.weights = weights

    def log_all(self, f: LogitVectors) -> LogitVectors:
        """Weighted sum of log-sigmoids of f_c - f_c' over c' != c."""
        n_way = f.shape[-1]
        if self.weights is not None and self.weights.shape[0] != n_way:
            raise InputError(f"weights are for {self.weights.shape[0]} classes, the logits for {n_way}")
        pairs = logsigmoid(f[..., :, None] - f[..., None, :])
        weights = 1.0 if self.weights is None else self.weights.to(f)
        others = 1.0 - torch.eye(n_way, dtype=f.dtype, device=f.device)
        return (pairs * others * weights).sum(-1)

    def closed_form_log_probs(self, logits: Logits, rule: Rule) -> QueryLogits:
        """Products of E[sigmoid(f_c - f_c')] or of exp E[log sigmoid(f_c - f_c')], normalised."""
        # Each pair of classes i < j is used once, for both of its comparisons.
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
        if self.weights is not None:
            weights = self.weights.to(difference)
            i_over_j, j_over_i = weights[i, j] * i_over_j, weights[j, i] * j_over_i
        total = torch.zeros_like(logits.mean).index_add(-1, i, i_over_j).index_add(-1, j, j_over_i)
        return log_softmax(total, -1)

    def monte_carlo_log_probs(self, logits: Logits, noise: NormalPoints) -> QueryLogits:
        """As in the base class; by a compiled loop for unit weights where no gradient is wanted."""
        gradient = torch.is_grad_enabled() and (logits.mean.requires_grad or logits.covariance.requires_grad)
        if self.weights is not None or gradient:
            return super().monte_carlo_log_probs(logits, noise)
        n_query, n_way = logits.mean.shape[-2:]
        mean = as_array(logits.mean.reshape(-1, n_way))
        root = as_array(_root(logits.covariance).reshape(-1, n_way, n_way))
        points = as_array(noise.reshape(-1, *noise.shape[-2:]))
        out = np.empty_like(mean)
        in_threads(
            lambda first, last: mean_one_vs_each(mean, root, points, n_query, first, last, out),
            len(out),
            4 * n_way**2 * points.shape[1],
        )
        return as_tensor(out).to(logits.mean).clamp(min=1e-300).log().reshape(logits.mean.shape)


LIKELIHOODS: Registry[type[Likelihood]] = Registry(
    "likelihood",
    {"softmax": Softmax, "gaussian": Gaussian, "logistic-softmax": LogisticSoftmax, "one-vs-each": OneVsEach},
    group="polyshot.likelihoods",
)


def _root(covariance: Float[Tensor, "*batch c c"]) -> Float[Tensor, "*batch c c"]:
    """Cholesky factor of a covariance that may be singular."""
    scale = covariance.diagonal(dim1=-2, dim2=-1).amax(-1).clamp(min=1e-30)[..., None, None]
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    return cholesky(covariance + 1e-9 * scale.detach() * identity)
