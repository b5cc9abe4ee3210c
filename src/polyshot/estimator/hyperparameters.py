"""Choice of the kernel's scale: leave-one-out log-likelihood under the rule that predicts, plus a learned log prior.

Leave-one-out alone is not enough with few examples. With one example per class there is nothing to learn from. With
two, leaving one out leaves its class with half of what the others have. With a few, a support set without errors is
happy with any large scale. So the logarithm of the scale has a normal prior. Its mean falls with the number of examples
per class and, when these are few, with the number of classes. An example that is one of n in its class has the weight
(1 - 1/n)^p. `python -m benchmarks.estimator_prior` learned these numbers over many tasks (docs/estimator-choices.md).

For the cosine the prior is on the scale times the scatter of the covariances between classes. Similarity to examples of
other classes is what a logit owes to chance, and a scale is large or small only in units of that.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.estimator.projection import scaled
from polyshot.estimator.rows import Features, content
from polyshot.gp import (
    FactoredKernel,
    KernelMatrix,
    TiedPropagation,
    climb,
    feature_space_is_cheaper,
    leave_one_out_likelihood,
)


class ScalePrior(NamedTuple):
    """Normal prior of the log-scale; `power` is the p of the weights.

    Its mean is level - by_shot log n - by_way log C / n - by_scatter log(scatter / 0.1), with n = N / C.
    """

    level: float
    by_shot: float
    by_way: float
    deviation: float
    power: float
    by_scatter: float = 1.0

    def mean(self, K: KernelMatrix, y: Int[Tensor, "n"], n_way: int, weights: Float[Tensor, "n"]) -> float:
        """The most probable log-scale for these examples."""
        return self.at(float(weights.sum()), n_way, scatter(K, y, weights))

    def at(self, n: int | float, n_way: int, scatter: float) -> float:
        """The most probable log-scale for N examples of C classes with this scatter."""
        n_shot = max(1.0, n / n_way)
        by_size = self.by_shot * np.log(n_shot) + self.by_way * np.log(n_way) / n_shot
        return float(self.level - by_size - self.by_scatter * np.log(scatter / _TYPICAL_SCATTER))


LEARNED = ScalePrior(level=5.59, by_shot=0.66, by_way=0.37, deviation=0.32, power=3.57)
# Learned without the scatter, which is misleading for kernels other than the cosine (docs/estimator-choices.md).
WITHOUT_SCATTER = ScalePrior(level=5.56, by_shot=0.64, by_way=0.38, deviation=0.42, power=3.17, by_scatter=0.0)
_TYPICAL_SCATTER, _PAIRS_TO_TRUST_A_SCATTER = 0.1, 5
_STEP = 0.6
_REACH = 12
_MOST_EXAMPLES, _ENOUGH_SHOTS = 500, 10


def choose_log_scale(
    K: KernelMatrix,
    y: Int[Tensor, "n"],
    n_way: int,
    prior: ScalePrior,
    intercept: float = 0.0,
    example_weights: Float[Tensor, "n"] | None = None,
) -> tuple[float, TiedPropagation | None]:
    """The log-scale with the best weighted log-likelihood plus log prior, and sites near those of that scale.

    The covariance of the logits is exp(log_scale) K + intercept. The search climbs from the prior's mean. Of more than
    500 examples only a part is used: its distance from its own prior's mean is applied to all, as are the means of its
    sites. Which part depends on the order of the examples (`by_content`). Examples of weight two count twice.
    """
    weights = torch.ones(len(y), dtype=torch.float64) if example_weights is None else example_weights
    centre = prior.mean(K, y, n_way, weights)
    if float(y.bincount(weights).max()) <= 1:
        return centre, None
    if len(y) > _MOST_EXAMPLES:
        part = _representatives(y, n_way)
        labels, y_part = np.unique(y[part].numpy(), return_inverse=True)
        some = _among(K, part, len(labels)), torch.from_numpy(y_part), len(labels)
        chosen, near = choose_log_scale(*some, prior, intercept, weights[part])
        distance = chosen - prior.mean(*some, weights[part])
        return centre + distance, None if near is None else _typical_sites(near, y, n_way)
    fits: dict[int, TiedPropagation] = {}

    def objective(k: int) -> float:
        near = min(fits, key=lambda other: abs(other - k), default=None)
        start = None if near is None else (fits[near].w, fits[near].kappa)
        likelihood, fits[k] = leave_one_out_likelihood(
            scaled(K, centre + _STEP * k, intercept),
            y,
            n_way,
            power=prior.power,
            start=start,
            example_weights=example_weights,
        )
        return likelihood - (_STEP * k / prior.deviation) ** 2 / 2

    best = climb(objective, _REACH)
    return float(centre + _STEP * best), fits[round(best)]


def by_content(X: Features) -> list[int]:
    """A pseudo-random order of the rows that depends only on their content, so that a part can be taken by position."""
    hashes = [blake2b(row).digest() for row in content(X)]
    return sorted(range(len(hashes)), key=hashes.__getitem__)


def scatter(K: KernelMatrix, y: Int[Tensor, "n"], weights: Float[Tensor, "n"]) -> float:
    """Standard deviation of the covariances between classes, shrunk as if five more pairs had deviated by 0.1."""
    if isinstance(K, FactoredKernel):
        total, squares = _between_classes(K.phi, y, weights)
    else:
        pairs = y[:, None] > y
        between, times = K[pairs], (weights[:, None] * weights)[pairs]
        total = float(times.sum())
        squares = float(times @ (between - times @ between / total).square())
    squares += _PAIRS_TO_TRUST_A_SCATTER * _TYPICAL_SCATTER**2
    return float(np.sqrt(squares / (total + _PAIRS_TO_TRUST_A_SCATTER)))


def _between_classes(phi: Tensor, y: Tensor, weights: Tensor) -> tuple[float, float]:
    """The weight of all pairs of examples of different classes, and the sum of their covariances' squared deviations.

    Sums over all ordered pairs less those within classes: with weights m, sum m m' K = |m^T Phi|^2 and
    sum m m' K^2 = |Phi^T diag(m) Phi|^2.
    """
    roots = weights.sqrt()[:, None] * phi
    pairs, total = float(weights.sum()) ** 2, float((weights @ phi).square().sum())
    squares = float((roots.mT @ roots).square().sum())
    for rows in torch.split(y.argsort(stable=True), y.bincount().tolist()):
        part = roots[rows]
        gram = part.mT @ part if len(part) > part.shape[1] else part @ part.mT
        pairs -= float(weights[rows].sum()) ** 2
        total -= float((weights[rows] @ phi[rows]).square().sum())
        squares -= float(gram.square().sum())
    return pairs / 2, max(0.0, squares / 2 - total**2 / pairs / 2)


def _among(K: Tensor | FactoredKernel, rows: Tensor, n_way: int) -> Tensor | FactoredKernel:
    """The kernel matrix of some examples, in the form that is cheaper for them."""
    if not isinstance(K, FactoredKernel):
        return K[rows][:, rows]
    part = FactoredKernel(K.phi[rows], K.each_pair)
    return part if feature_space_is_cheaper(len(rows), part.phi.shape[1], n_way) else part.matrix()


def _typical_sites(near: TiedPropagation, y: Int[Tensor, "n"], n_way: int) -> TiedPropagation:
    """Sites for all examples to start from: the geometric mean of a part's precisions, and its mean kappa."""
    kappa = near.kappa.sum() / (near.kappa != 0).sum()
    w = near.w.log().mean().exp().expand(len(y))
    return near._replace(w=w, kappa=kappa.expand(len(y), n_way).scatter(1, y[:, None], 0.0))


def _representatives(y: Int[Tensor, "n"], n_way: int) -> Int[Tensor, "m"]:
    """At most 500 examples: equally many of each class, or of some classes only if that would be fewer than ten."""
    rows = [torch.nonzero(y == c).flatten() for c in dict.fromkeys(y.tolist())]
    shots = max(_ENOUGH_SHOTS, _MOST_EXAMPLES // n_way)
    some = [r[torch.linspace(0, len(r) - 1, min(len(r), shots)).round().long()] for r in rows]
    total = torch.tensor([len(r) for r in some]).cumsum(0)
    return torch.cat([r for r, end in zip(some, total, strict=True) if end <= _MOST_EXAMPLES])
