"""The kernel's scale, chosen by leave-one-out log-likelihood under the very rule that predicts.

With one example a class nothing is left to learn from, and with a few the likelihood of a separable support set grows
without end: so a Gaussian prior on the logarithm of the scale, from tasks of the design halves of the benchmark's
embeddings (docs/estimator.md), which the data overrule as they grow.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp.tied import fit_tied_propagation

PRIOR_MEAN, PRIOR_DEVIATION = 4.75, 0.5
_STEP = 0.75
_SMALLEST, _LARGEST = -4.0, 9.0
_MOST_ROWS = 300
_ROWS_AT_ONCE = 2**24


def choose_log_scale(K: Float[Tensor, "n n"], y: Int[Tensor, "n"], n_way: int, rows: Int[Tensor, "r"]) -> float:
    """Climb from the prior's mean, on a grid, to the best sum of log-likelihoods and log prior; then by a parabola.

    `rows` are the examples that may be left out.
    """
    if len(rows) == 0:
        return PRIOR_MEAN
    known: dict[int, float] = {}

    def objective(k: int) -> float:
        if k not in known:
            log_scale = PRIOR_MEAN + _STEP * k
            likelihood = leave_one_out_likelihood(np.exp(log_scale) * K, y, n_way, rows)
            known[k] = likelihood - ((log_scale - PRIOR_MEAN) / PRIOR_DEVIATION) ** 2 / 2
        return known[k]

    best = 0
    while _SMALLEST < PRIOR_MEAN + _STEP * best < _LARGEST:
        better = max((best - 1, best, best + 1), key=objective)
        if better == best:
            low, middle, high = (objective(best + d) for d in (-1, 0, 1))
            curvature = low - 2 * middle + high
            shift = (low - high) / (2 * curvature) if curvature < 0 else 0.0
            return float(PRIOR_MEAN + _STEP * (best + shift))
        best = better
    return PRIOR_MEAN + _STEP * best


def leave_one_out_likelihood(K: Float[Tensor, "n n"], y: Int[Tensor, "n"], n_way: int, rows: Int[Tensor, "r"]) -> float:
    """Sum over `rows` of log p(y_i | all others), by removing an example's own sites; from a part if they are many."""
    fit, posterior = fit_tied_propagation(K, y, n_way, tolerance=1e-2, max_sweeps=30)
    some = rows[torch.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).round().long()]
    at_once = max(1, _ROWS_AT_ONCE // n_way**2)
    total = 0.0
    for part in torch.split(some, at_once):
        log_probs = torch.log_softmax(posterior.leave_one_out(fit, part), -1)
        total += float(log_probs.gather(-1, y[part][:, None]).sum())
    return total * len(rows) / len(some)
