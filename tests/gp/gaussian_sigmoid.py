"""log E[sigmoid(x)] and E[log sigmoid(x)] for x ~ N(mean, variance), by the trapezoid rule to 12 digits."""

import numpy as np
from scipy.special import log_expit, logsumexp


def _grid(mean, variance):
    """Points that cover N(mean, variance) and its tilt by exp(x); the rule converges exponentially in the step."""
    deviation = np.sqrt(variance)
    step = min(deviation, 1.0) / 8
    x = np.arange(min(mean, mean + variance) - 13 * deviation, max(mean, mean + variance) + 13 * deviation, step)
    log_density = -((x - mean) ** 2) / (2 * variance) - np.log(2 * np.pi * variance) / 2
    return x, log_density + np.log(step)


def log_expected_sigmoid(mean, variance):
    if variance == 0:
        return log_expit(mean)
    x, log_weight = _grid(mean, variance)
    return logsumexp(log_weight + log_expit(x))


def expected_log_sigmoid(mean, variance):
    if variance == 0:
        return log_expit(mean)
    x, log_weight = _grid(mean, variance)
    return np.exp(log_weight) @ log_expit(x)
