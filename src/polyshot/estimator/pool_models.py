"""The three models that answer together if there is a pool (docs/estimator-unlabelled.md).

- graph: the kernel that the pool's graph deforms (pool.py). This is the fitted model itself.
- plain: the labelled examples alone. It bounds the harm that a misleading pool can do.
- self-trained: the labelled examples, and the pool rows that the other two are surest of, with the labels they give.

Their mean logits are added with shares that depend on q, the plain model's mean top probability on the pool. Graph and
self-trained get q / 3 each, plain gets (2 - q) / 3. So a pool that is easy to classify gets two thirds of the answer.
Strangers, and classes that the labels do not tell apart, lower q: the pool then gets less, and the sum of the shares is
below one, because the three models share their errors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.estimator.covariance import Covariance
from polyshot.estimator.examples import Examples
from polyshot.estimator.hyperparameters import LEARNED, WITHOUT_SCATTER, choose_log_scale
from polyshot.estimator.inference import Inferred
from polyshot.estimator.pool import PooledCovariance
from polyshot.gp import as_tensor

_GUESSED_PER_CLASS, _MOST_GUESSED = 15, 1000
_CHUNK_NUMBERS = 2**22


@dataclass(frozen=True)
class Companion:
    """Mean logits (exp(log_scale) k(x, X) + intercept) a of a model; share is its part in the answer."""

    covariance: Covariance
    X: Float[Tensor, "n d"]
    log_scale: float
    weights: Float[Tensor, "n c"]
    share: float

    def covariances(self, x: Float[Tensor, "q d"]) -> Float[Tensor, "q n"]:
        """What the weights multiply."""
        scale = float(np.exp(self.log_scale))
        return scale * self.covariance(x, self.X) + self.covariance.intercept

    def logits(self, x: Float[Tensor, "q d"]) -> Float[Tensor, "q c"]:
        """Mean logits, in parts that bound the memory."""
        parts = torch.split(x, max(1, _CHUNK_NUMBERS // (len(self.X) + x.shape[1])))
        return torch.cat([self.covariances(part) @ self.weights for part in parts])

    def contributions(self, x: Float[Tensor, "q d"], places: Int[Tensor, "q"]) -> Float[Tensor, "q n"]:
        """What each row of X adds to the logit of the class at places[q]."""
        return self.covariances(x) * self.weights.T[places]


def companions(
    covariance: PooledCovariance,
    examples: Examples,
    graph_logits: Float[Tensor, "u c"],
    log_scales: tuple[float, ...],
    infer: Callable[..., Inferred],
) -> tuple[Companion, Companion]:
    """The plain and the self-trained model.

    graph_logits are those of the pool by the model with the graph. log_scales has the scale of each companion, or is
    empty to choose them. That of the self-trained model is then the prior's most probable one, because guessed labels
    agree with the kernel too well to judge it.
    """
    plain_covariance, pool = covariance.plain, covariance.pool
    X, y, n_way = as_tensor(examples.X), torch.from_numpy(examples.labels), len(examples.classes)
    weights = torch.ones(len(X), dtype=X.dtype) if examples.powers is None else examples.powers
    prior = LEARNED if plain_covariance.is_cosine else WITHOUT_SCATTER
    K = _symmetric(plain_covariance, X)
    intercept = plain_covariance.intercept
    chosen = log_scales or choose_log_scale(K, y, n_way, prior, intercept, examples.powers)

    def fitted(X: Tensor, K: Tensor, y: Tensor, powers: Tensor | None, log_scale: float, share: float) -> Companion:
        found = infer(np.exp(log_scale) * K + intercept, y, n_way, None, powers)
        return Companion(plain_covariance, X, log_scale, found.weights, share)

    plain = fitted(X, K, y, examples.powers, float(chosen[0]), share=1.0)
    plain_logits = plain.logits(pool)
    third = float(torch.softmax(plain_logits, -1).amax(-1).mean()) / 3
    rows, guesses = _surest((plain_logits + graph_logits) / 2)
    X, y = torch.cat([X, pool[rows]]), torch.cat([y, guesses])
    weights = torch.cat([weights, torch.ones(len(rows), dtype=weights.dtype)])
    K = _symmetric(plain_covariance, X)
    log_scale = log_scales[1] if log_scales else prior.mean(K, y, n_way, weights)
    powers = None if examples.powers is None else weights
    return replace(plain, share=2 / 3 - third), fitted(X, K, y, powers, log_scale, share=third)


def _surest(logits: Float[Tensor, "u c"]) -> tuple[Int[Tensor, "g"], Int[Tensor, "g"]]:
    """Rows of the most probable guesses, at most 15 per class and about 1,000 in all, and the guesses."""
    probability, guess = torch.softmax(logits, -1).max(-1)
    n_way = logits.shape[-1]
    most = max(1, min(_GUESSED_PER_CLASS, _MOST_GUESSED // n_way))
    order = probability.argsort(descending=True, stable=True)
    rows = torch.cat([order[guess[order] == c][:most] for c in range(n_way)])
    return rows, guess[rows]


def _symmetric(covariance: Covariance, X: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    K = covariance(X, X)
    return (K + K.mT) / 2
