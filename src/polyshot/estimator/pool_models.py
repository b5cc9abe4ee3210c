"""The three models that answer together if there is a pool (docs/estimator-unlabelled.md).

- graph: the kernel that the pool's graph deforms (pool.py). This is the fitted model itself.
- plain: the labelled examples alone. It bounds the harm that a misleading pool can do.
- self-trained: the labelled examples, and the pool rows that the other two are surest of, with the labels they give.

Their mean logits are averaged, as far as the pool can be trusted, and carefully where it is hard to classify. Three
numbers decide:

- a, the nearness: the chance that a row of the pool is nearer to the examples of all classes but one than an example of
  that one class is. Strangers are no nearer than examples of other classes are, so theirs is 1/2.
- b, the agreement: the mean over the pool's rows of sum_c sqrt(p_c p'_c), for the probabilities p of plain and p' of
  graph. A pool of strangers has clusters of its own, and the graph then contradicts the labels.
- q, the plain model's mean top probability on the pool. Where it is low, all three models are wrong together, and their
  mean is too confident.

The trust t is 3 (a - 0.5) + 15 (b - 0.91), cut off at 0 and 1. The answer is

    (1 - t) plain + t (1 + 2 q) / 3 (plain + graph + self-trained) / 3 .
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
_TRUST_BY_NEARNESS, _NEARNESS_OF_STRANGERS = 3.0, 0.5
_TRUST_BY_AGREEMENT, _LEAST_AGREEMENT = 15.0, 0.91
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
    nearness, agreement = _nearness(plain_covariance, X, K, y, pool), _agreement(plain_logits, graph_logits)
    trust = _TRUST_BY_NEARNESS * (nearness - _NEARNESS_OF_STRANGERS) + _TRUST_BY_AGREEMENT * (
        agreement - _LEAST_AGREEMENT
    )
    trust, q = min(1.0, max(0.0, trust)), float(torch.softmax(plain_logits, -1).amax(-1).mean())
    share = trust * (1 + 2 * q) / 9
    rows, guesses = _surest((plain_logits + graph_logits) / 2)
    X, y = torch.cat([X, pool[rows]]), torch.cat([y, guesses])
    weights = torch.cat([weights, torch.ones(len(rows), dtype=weights.dtype)])
    K = _symmetric(plain_covariance, X)
    log_scale = log_scales[1] if log_scales else prior.mean(K, y, n_way, weights)
    powers = None if examples.powers is None else weights
    return replace(plain, share=1 - trust + share), fitted(X, K, y, powers, log_scale, share)


def _nearness(
    covariance: Covariance,
    X: Float[Tensor, "n d"],
    K: Float[Tensor, "n n"],
    y: Int[Tensor, "n"],
    pool: Float[Tensor, "u d"],
) -> float:
    """How often a row of the pool is nearer to the examples of other classes than an example is; 1/2 for strangers.

    Each class in turn is left out. Its examples, whose covariances are K, show how near a stranger to the rest is.
    """
    members = [torch.nonzero(y == c).flatten() for c in range(int(y.max()) + 1)]
    parts = torch.split(pool, max(1, _CHUNK_NUMBERS // (len(X) + pool.shape[1])))
    of_class = [torch.stack([k[:, rows].amax(-1) for rows in members], -1) for k in (covariance(x, X) for x in parts)]
    nearest, nearer = torch.cat(of_class), 0.0
    for c, rows in enumerate(members):
        others = torch.arange(len(members)) != c
        of_pool = nearest[:, others].amax(-1).sort().values
        of_examples = K[rows][:, y != c].amax(-1)
        below = [torch.searchsorted(of_pool, of_examples, right=right).sum() for right in (False, True)]
        nearer += len(rows) * len(pool) - float(sum(below)) / 2  # ties count half
    return nearer / (len(X) * len(pool))


def _agreement(plain_logits: Float[Tensor, "u c"], graph_logits: Float[Tensor, "u c"]) -> float:
    """How far plain and graph agree on the pool, at most 1."""
    products = torch.softmax(plain_logits, -1) * torch.softmax(graph_logits, -1)
    return float(products.sqrt().sum(-1).mean())


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
