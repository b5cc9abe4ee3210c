"""The four likelihoods of Section 5.1 over class logits f.

Each has `log_likelihood(f, y)`, log L(f | y), which for Gaussian and one-vs-each does not sum to one over y,
and `log_probs(f)`, the same normalised over the classes. Both are finite for logits of +-1e4 and beyond.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid

from polyshot.errors import InputError


class Likelihood:
    """Base of all likelihoods: `log_all(f)` gives log L(f | y = c) for every class c."""

    name: ClassVar[str]

    def log_all(self, f: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
        """Log L(f | y = c) for every class."""
        raise NotImplementedError

    def log_likelihood(self, f: Float[Tensor, "*batch c"], y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Log L(f | y) of the label."""
        return self.log_all(f).gather(-1, y[..., None]).squeeze(-1)

    def log_probs(self, f: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
        """Log class probabilities, the likelihood normalised over the classes."""
        return log_softmax(self.log_all(f), -1)


class Softmax(Likelihood):
    """exp(f_c) / sum exp(f)."""

    name = "softmax"

    def log_all(self, f: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
        """Log-softmax."""
        return log_softmax(f, -1)


class Gaussian(Likelihood):
    """Independent N(+1 | f_c, s^2) for the label's class and N(-1 | f_c', s^2) for the others."""

    name = "gaussian"

    def __init__(self, noise: float | Float[Tensor, ""] = 1.0) -> None:
        if not noise > 0:
            raise InputError(f"the noise variance must be positive, not {noise}")
        self.noise = noise

    def log_all(self, f: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
        """Sum of the C log-densities."""
        rest = ((f + 1) ** 2).sum(-1, keepdim=True)
        # (f_c - 1)^2 in place of (f_c + 1)^2 for the label's class
        squared = rest - 4 * f
        noise = torch.as_tensor(self.noise).to(f)
        return -squared / (2 * noise) - f.shape[-1] / 2 * torch.log(2 * math.pi * noise)

    def log_probs(self, f: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
        """Log-softmax of 2 f / s^2: the terms common to all classes cancel."""
        return log_softmax(2 * f / self.noise, -1)


class LogisticSoftmax(Likelihood):
    """sigmoid(f_c) / sum sigmoid(f), of Galy-Fajou et al. (2020)."""

    name = "logistic-softmax"

    def log_all(self, f: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
        """Log-softmax of the log-sigmoids."""
        return log_softmax(logsigmoid(f), -1)


class OneVsEach(Likelihood):
    """Product over the other classes of sigmoid(f_c - f_c'), of Titsias (2016).

    It is a composite likelihood of pairwise conditional events (Section 4.1): `weights` [C, C] raises the
    comparison of label c with class c' to the power weights[c, c'] > 0; without it all are one.
    """

    name = "one-vs-each"

    def __init__(self, weights: Float[Tensor, "c c"] | None = None) -> None:
        if weights is not None and (weights.ndim != 2 or weights.shape[0] != weights.shape[1]):
            raise InputError(f"pairwise weights must be [C, C]; their shape is {tuple(weights.shape)}")
        if weights is not None and not bool((torch.isfinite(weights) & (weights > 0)).all()):
            raise InputError("pairwise weights must be positive and finite")
        self.weights = weights

    def log_all(self, f: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
        """Weighted sum of log-sigmoids of f_c - f_c' over c' != c."""
        n_way = f.shape[-1]
        if self.weights is not None and self.weights.shape[0] != n_way:
            raise InputError(f"weights are for {self.weights.shape[0]} classes, the logits for {n_way}")
        pairs = logsigmoid(f[..., :, None] - f[..., None, :])
        weights = 1.0 if self.weights is None else self.weights.to(f)
        others = 1.0 - torch.eye(n_way, dtype=f.dtype, device=f.device)
        return (pairs * others * weights).sum(-1)


LIKELIHOODS: dict[str, type[Likelihood]] = {
    likelihood.name: likelihood for likelihood in (Softmax, Gaussian, LogisticSoftmax, OneVsEach)
}
