"""The kernel's scale, chosen by leave-one-out log-likelihood under the very rule that predicts, and a learned prior.

With one example a class nothing is left to learn from; with two, leaving one out leaves its class with half of what
the others have; and with a few, a support set without an error asks for any scale. So the logarithm of the scale has a
normal prior, whose mean falls with the number of examples a class and, where these are few, of classes, and an example
that is one of n in its class speaks with the weight (1 - 1/n)^p. `python -m benchmarks.estimator_prior` learns these
numbers over many tasks (docs/estimator.md).

For the cosine they are numbers of the scale times the scatter of the covariances between classes: an example's likeness
to those of other classes is what its logits owe to chance, and only in units of that is a scale large or small.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from polyshot.gp import TiedPropagation, climb, fit_tied_propagation


class ScalePrior(NamedTuple):
    """Normal, with the mean `level - by_shot log n - by_way log C / n - by_scatter log(scatter / 0.1)`, n = N / C.

    power is the p of the weights.
    """

    level: float
    by_shot: float
    by_way: float
    deviation: float
    power: float
    by_scatter: float = 1.0

    def mean(self, K: Float[Tensor, "n n"], y: Int[Tensor, "n"], n_way: int) -> float:
        """The most probable log-scale for these examples."""
        return self.at(len(y), n_way, scatter(K, y))

    def at(self, n: int, n_way: int, scatter: float) -> float:
        """The most probable log-scale for N examples of C classes with this scatter."""
        n_shot = n / n_way
        by_size = self.by_shot * np.log(n_shot) + self.by_way * np.log(n_way) / n_shot
        return float(self.level - by_size - self.by_scatter * np.log(scatter / _TYPICAL_SCATTER))


LEARNED = ScalePrior(level=5.59, by_shot=0.66, by_way=0.37, deviation=0.32, power=3.57)
# Learned without the scatter, which for other kernels than the cosine misleads (docs/estimator.md).
WITHOUT_SCATTER = ScalePrior(level=5.56, by_shot=0.64, by_way=0.38, deviation=0.42, power=3.17, by_scatter=0.0)
_TYPICAL_SCATTER, _PAIRS_TO_TRUST_A_SCATTER = 0.1, 5
_STEP = 0.6
_REACH = 12
_MOST_EXAMPLES, _ENOUGH_SHOTS = 500, 10
_MOST_ROWS = 300
NUMBERS_AT_ONCE = 2**20


def choose_log_scale(
    K: Float[Tensor, "n n"], y: Int[Tensor, "n"], n_way: int, prior: ScalePrior, intercept: float = 0.0
) -> tuple[float, TiedPropagation | None]:
    """Climb from the prior's mean to the best weighted log-likelihood plus log prior, and sites near that scale's.

    The covariance of the logits is exp(log_scale) K + intercept.
    Of more than 500 examples a part climbs: how far it comes from its own prior's mean is taken over, its sites not.
    Which part, depends on their order (`by_content`).
    """
    centre = prior.mean(K, y, n_way)
    if int(y.bincount().max()) == 1:
        return centre, None
    if len(y) > _MOST_EXAMPLES:
        part = _representatives(y, n_way)
        labels, y_part = np.unique(y[part].numpy(), return_inverse=True)
        some = K[part][:, part], torch.from_numpy(y_part), len(labels)
        return centre + choose_log_scale(*some, prior, intercept)[0] - prior.mean(*some), None
    fits: dict[int, TiedPropagation] = {}

    def objective(k: int) -> float:
        near = min(fits, key=lambda other: abs(other - k), default=None)
        start = None if near is None else (fits[near].w, fits[near].kappa)
        likelihood, fits[k] = leave_one_out_likelihood(
            np.exp(centre + _STEP * k) * K + intercept, y, n_way, power=prior.power, start=start
        )
        return likelihood - (_STEP * k / prior.deviation) ** 2 / 2

    best = climb(objective, _REACH)
    return float(centre + _STEP * best), fits[round(best)]


def by_content(X: NDArray[np.float64]) -> list[int]:
    """An order of the rows as if by lot, but the same however they came: parts of them can be taken by place."""
    return sorted(range(len(X)), key=lambda i: blake2b(X[i].tobytes()).digest())


def scatter(K: Float[Tensor, "n n"], y: Int[Tensor, "n"]) -> float:
    """Standard deviation of the covariances of examples of different classes, as if five more pairs had 0.1."""
    between = K[y[:, None] > y]
    squares = float((between - between.mean()).square().sum()) + _PAIRS_TO_TRUST_A_SCATTER * _TYPICAL_SCATTER**2
    return float(np.sqrt(squares / (len(between) + _PAIRS_TO_TRUST_A_SCATTER)))


def _representatives(y: Int[Tensor, "n"], n_way: int) -> Int[Tensor, "m"]:
    """At most 500 examples: an equal number of each class, or, where that were less than ten, of some classes only."""
    rows = [torch.nonzero(y == c).flatten() for c in dict.fromkeys(y.tolist())]
    shots = max(_ENOUGH_SHOTS, _MOST_EXAMPLES // n_way)
    some = [r[torch.linspace(0, len(r) - 1, min(len(r), shots)).round().long()] for r in rows]
    total = torch.tensor([len(r) for r in some]).cumsum(0)
    return torch.cat([r for r, end in zip(some, total, strict=True) if end <= _MOST_EXAMPLES])


def leave_one_out_likelihood(
    K: Float[Tensor, "n n"],
    y: Int[Tensor, "n"],
    n_way: int,
    *,
    power: float = 0.0,
    start: tuple[Float[Tensor, "n"], Float[Tensor, "n c"]] | None = None,
) -> tuple[float, TiedPropagation]:
    """Weighted sum of log p(y_i | all others), by removing an example's own sites; from a part if they are many."""
    fit, posterior = fit_tied_propagation(K, y, n_way, tolerance=3e-2, max_sweeps=25, start=start)
    shots = y.bincount()[y]
    rows = torch.nonzero(shots > 1).flatten()
    some = rows[torch.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).round().long()]
    total = 0.0
    for part in torch.split(some, max(1, NUMBERS_AT_ONCE // n_way**2)):
        log_probs = torch.log_softmax(posterior.leave_one_out(fit, part), -1).gather(-1, y[part][:, None])
        total += float(log_probs.squeeze(-1) @ (1 - 1 / shots[part].double()) ** power)
    return total * len(rows) / len(some), fit
