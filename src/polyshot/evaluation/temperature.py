"""Temperature scaling (Guo et al., 2017): one number, fitted on validation predictions, that calibrates a rival."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import log_softmax

from polyshot.errors import InputError
from polyshot.evaluation.validation import ArrayOrTensor, check_log_probs, to_numpy


@dataclass(frozen=True)
class Temperature:
    """Divide log-probabilities by `value` and normalise.

    `bound` is None if `value` is the optimum; otherwise the log-loss would fall further beyond that end of the range:
    "lower" if all predictions are right, where T would go to 0, or nearly; "upper" if they are no better than chance.
    `n_impossible` examples had probability 0 for their true class, which no temperature changes: they were left out.
    """

    value: float
    bound: Literal["lower", "upper"] | None
    n_impossible: int


def fit_temperature(
    log_probs: ArrayOrTensor, labels: ArrayOrTensor, lower: float = 0.01, upper: float = 100.0
) -> Temperature:
    """The T in [lower, upper] of the least log-loss of log_probs [n, C] for labels [n]; 1 if every T is as good.

    The log-loss is convex in beta = 1 / T; its slope, E[log p_y'] under the scaled probabilities minus log p_y in the
    mean, rises with beta and its root is found to machine precision.
    """
    if not 0 < lower < upper < np.inf:
        raise InputError(f"temperatures must have 0 < lower < upper < infinity; they are {lower} and {upper}")
    log_p, y = check_log_probs(log_probs, labels)
    true = log_p[np.arange(len(y)), y]
    possible = np.isfinite(true)
    if not possible.any():
        raise InputError("every true class has probability 0: no temperature can mend that; check labels and classes")
    largest = log_p.max(1, keepdims=True)
    # Relative to the largest of a row, so that exp never overflows and equal ones are exactly 0.
    log_p, true = (log_p - largest)[possible], (true - largest[:, 0])[possible]
    finite = np.where(np.isfinite(log_p), log_p, 0.0)

    def slope(beta: float) -> float:
        weight = np.exp(beta * log_p)
        return float(((weight * finite).sum(1) / weight.sum(1) - true).mean())

    n_impossible = int((~possible).sum())
    at_upper, at_lower = slope(1 / upper), slope(1 / lower)
    if at_upper == at_lower == 0:
        return Temperature(1.0, None, n_impossible)
    if at_upper >= 0:
        return Temperature(upper, "upper", n_impossible)
    if at_lower <= 0:
        return Temperature(lower, "lower", n_impossible)
    from scipy.optimize import brentq  # here, because it is slow to import

    beta = brentq(slope, 1 / upper, 1 / lower, xtol=1e-300, rtol=4 * np.finfo(np.float64).eps)
    return Temperature(1 / beta, None, n_impossible)


def scale_log_probs(log_probs: ArrayOrTensor, temperature: float) -> Float[np.ndarray, "*batch c"]:
    """log_probs [..., C] / T, normalised, in double precision; a probability of 0 stays 0."""
    if not 0 < temperature < np.inf:
        raise InputError(f"temperature must be positive and finite; it is {temperature}")
    log_p = to_numpy(log_probs).astype(np.float64)
    if log_p.ndim == 0 or log_p.size == 0 or not np.isfinite(log_p.max(-1)).all():
        raise InputError(f"log-probabilities must be [..., C] with a finite largest in each row; shape {log_p.shape}")
    scaled: np.ndarray = log_softmax(log_p / temperature, axis=-1)
    return scaled
