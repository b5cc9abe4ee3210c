"""Which points to observe next, so that the values that matter become as certain as possible.

Let C be the covariance of a GP's values at n candidates, and a_j how much the value at target j matters. An observation
at candidate i with noise s lowers the variance at target j by C_ij^2 / (C_ii + s). So the next point is the one with
the largest

    sum_j a_j C_ij^2 / (C_ii + s) ,

and C becomes C - c_i c_i^T / (C_ii + s), whatever the observed value is. So a batch is chosen point by point without
knowing the answers. A copy of a chosen point has little left to tell. A point that is correlated with no other tells
about itself only.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def most_informative(
    covariance: Callable[[Int[Tensor, "m"]], Float[Tensor, "n m"]],
    variances: Float[Tensor, "n"],
    targets: Int[Tensor, "t"],
    relevance: Float[Tensor, "t"],
    avoided: Bool[Tensor, "n"],
    group: Int[Tensor, "n"],
    n_points: int,
    noise: float,
) -> list[int]:
    """The best candidates, greedily, in the order of choice.

    Parameters
    ----------
    covariance : callable
        Covariances of all n candidates with some of them, given by their numbers.
    variances : Tensor [n]
        Variances of the candidates.
    targets, relevance : Tensor [t]
        The candidates whose values matter, and how much.
    avoided : Tensor [n]
        Candidates that are chosen only if no others are left.
    group : Tensor [n]
        Candidates of the same group are copies of each other. Once one is chosen, the others are avoided.
    n_points : int
        How many to choose, at most n.
    noise : float
        The variance of an observation.
    """
    C, variances, avoided = covariance(targets), variances.clone(), avoided.clone()
    known: list[Tensor] = []  # C has lost the sum of their outer products
    chosen: list[int] = []
    while len(chosen) < n_points:
        gain = (C.square() @ relevance) / (variances + noise)
        gain[chosen] = -torch.inf
        best = int((gain - avoided * (1 + gain.max())).argmax())
        column = covariance(torch.tensor([best]))[:, 0]
        for factor in known:
            column = column - factor * factor[best]
        factor = column / (variances[best] + noise).sqrt()
        C -= factor[:, None] * factor[targets]
        variances -= factor.square()
        avoided |= group == group[best]
        known.append(factor)
        chosen.append(best)
    return chosen
