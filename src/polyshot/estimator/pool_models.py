"""Two models that stand beside the one with the graph of the pool; the mean of the three answers (docs/estimator-unlabelled.md).

- plain: the labelled examples alone. It bounds the harm that a misleading pool can do.
- graph: the kernel that the pool's graph deforms (pool.py). This is the fitted model itself.
- self-trained: the labelled examples, and the pool rows that the other two are surest of, with the labels they give.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.estimator.covariance import Covariance
from polyshot.estimator.hyperparameters import LEARNED, WITHOUT_SCATTER, choose_log_scale
from polyshot.estimator.inference import Inferred
from polyshot.estimator.pool import PooledCovariance

TRUST = 0.85  # of the mean logits: the three models share their errors
_GUESSED_PER_CLASS, _MOST_GUESSED = 15, 1000
_CHUNK_NUMBERS = 2**22


@dataclass(frozen=True)
class Companion:
    """Mean logits (exp(log_scale) k(x, X) + intercept) a of a model, with the weights a [N, C]."""

    covariance: Covariance
    X: Float[Tensor, "n d"]
    log_scale: float
    weights: Float[Tensor, "n c"]

    def covariances(self, x: Float[Tensor, "q d"]) -> Float[Tensor, "q n"]:
        """What the weights multiply."""
        return np.exp(self.log_scale) * self.covariance(x, self.X) + self.covariance.intercept

    def logits(self, x: Float[Tensor, "q d"]) -> Float[Tensor, "q c"]:
        """Mean logits, in parts that bound the memory."""
        parts = torch.split(x, max(1, _CHUNK_NUMBERS // (len(self.X) + x.shape[1])))
        return torch.cat([self.covariances(part) @ self.weights for part in parts])

    def contributions(self, x: Float[Tensor, "q d"], places: Int[Tensor, "q"]) -> Float[Tensor, "q n"]:
        """What each row of X adds to the logit of the class at places[q]."""
        return self.covariances(x) * self.weights.T[places]


def companions(
    covariance: PooledCovariance,
    X: Float[Tensor, "n d"],
    y: Int[Tensor, "n"],
    n_way: int,
    graph_logits: Float[Tensor, "u c"],
    log_scales: tuple[float, ...],
    infer: Callable[..., Inferred],
) -> tuple[Companion, Companion]:
    """The plain and the self-trained model; log_scales has the scale of each, or is empty to choose them.

    graph_logits are those of the pool by the model with the graph.

    Pool rows of the self-trained model: of each class the 15 with the largest probability of it, of those whose most
    probable class it is. Its scale is the prior's most probable one, because guessed labels agree with the kernel too
    well to judge it.
    """
    plain_covariance = covariance.plain

    def fitted(X: Tensor, y: Tensor, log_scale: float | None, guessed: bool) -> Companion:
        K = plain_covariance(X, X)
        K = (K + K.mT) / 2
        prior, start = LEARNED if plain_covariance.is_cosine else WITHOUT_SCATTER, None
        if log_scale is None and guessed:
            log_scale = prior.mean(K, y, n_way)
        elif log_scale is None:
            log_scale, near = choose_log_scale(K, y, n_way, prior, plain_covariance.intercept)
            start = None if near is None else (near.w, near.kappa)
        scaled = np.exp(log_scale) * K + plain_covariance.intercept
        return Companion(plain_covariance, X, log_scale, infer(scaled, y, n_way, start).weights)

    first, second = log_scales or (None, None)
    plain = fitted(X, y, first, guessed=False)
    rows, labels = _surest(plain.logits(covariance.pool) + graph_logits)
    joined, both = torch.cat([X, covariance.pool[rows]]), torch.cat([y, labels])
    return plain, fitted(joined, both, second, guessed=True)


def _surest(logits: Float[Tensor, "u c"]) -> tuple[Int[Tensor, "g"], Int[Tensor, "g"]]:
    """Rows with the most probable guesses, at most 15 per class, and the guesses."""
    probability, guess = torch.softmax(logits / 2, -1).max(-1)
    n_way = logits.shape[-1]
    most = max(1, min(_GUESSED_PER_CLASS, _MOST_GUESSED // n_way))
    order = probability.argsort(descending=True, stable=True)
    rows = torch.cat([order[guess[order] == c][:most] for c in range(n_way)])
    return rows, guess[rows]
