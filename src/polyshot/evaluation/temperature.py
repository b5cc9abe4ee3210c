"""Temperature scaling (Guo et al., 2017): calibrate a method with one number, fitted on validation predictions."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import log_softmax

from polyshot.errors import InputError
from polyshot.evaluation.checks import ArrayOrTensor, check_log_probs, to_numpy


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature: log-probabilities are divided by `value` and normalised.

    Attributes
    ----------
    value : float
    bound : "lower", "upper" or None
        None if `value` is the optimum. Otherwise the log-loss would fall further beyond that end of the range:
        "lower" if (nearly) all predictions are right, "upper" if they are no better than chance.
    n_impossible : int
        Examples left out because their true class had probability 0, which no temperature changes.
    n_episodes : int, optional
        Validation episodes that it was fitted on, where it was fitted by `polyshot evaluate`.
    """

    value: float
    bound: Literal["lower", "upper"] | None = None
    n_impossible: int = 0
    n_episodes: int | None = None


def fit_temperature(
    log_probs: ArrayOrTensor, labels: ArrayOrTensor, lower: float = 0.01, upper: float = 100.0
) -> Temperature:
    """Find the T in [lower, upper] that minimises the log-loss of log_probs [n, C] for labels [n]; 1 if all are equal.

    The log-loss is convex in beta = 1 / T. Its slope is the mean over examples of E[log p_y'] under the scaled
    probabilities minus log p_y. The slope rises with beta, and its root is found to machine precision.
    """
    if not 0 < lower < upper < np.inf:
        raise InputError(f"temperatures must have 0 < lower < upper < infinity; they are {lower} and {upper}")
    log_p, y = check_log_probs(log_probs, labels)
    true = log_p[np.arange(len(y)), y]
    possible = np.isfinite(true)
    if not possible.any():
        raise InputError("every true class has probability 0, which no temperature changes; check labels and classes")
    largest = log_p.max(1, keepdims=True)
    # Relative to the largest of each row, so that exp never overflows and ties are exactly 0.
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
    from scipy.optimize import brentq  # imported here because it is slow to import

    beta = brentq(slope, 1 / upper, 1 / lower, xtol=1e-300, rtol=4 * np.finfo(np.float64).eps)
    return Temperature(1 / beta, None, n_impossible)


def scale_log_probs(log_probs: ArrayOrTensor, temperature: float) -> Float[np.ndarray, "*batch c"]:
    """Divide log_probs [..., C] by T and normalise, in double precision; a probability of 0 stays 0."""
    if not 0 < temperature < np.inf:
        raise InputError(f"temperature must be positive and finite; it is {temperature}")
    log_p = to_numpy(log_probs).astype(np.float64)
    if log_p.ndim == 0 or log_p.size == 0 or not np.isfinite(log_p.max(-1)).all():
        raise InputError(f"log-probabilities must be [..., C] with a finite maximum in each row; shape {log_p.shape}")
    scaled: np.ndarray = log_softmax(log_p / temperature, axis=-1)
    return scaled
