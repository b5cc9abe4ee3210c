"""What the tests of GP methods share: a small task, and an expectation by quadrature."""

import numpy as np
import torch
from scipy.integrate import quad

from polyshot.task import Episode, LabelledSet, Space

N_WAY, D = 3, 6
SPACE = Space((D,), 20)


def episode(seed: int = 0, n_shot: int = 2, n_query: int = 2) -> Episode:
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(N_WAY, D, generator=g)

    def labelled(n: int) -> LabelledSet:
        y = torch.arange(N_WAY).repeat_interleave(n)
        return LabelledSet(centres[y] + 0.7 * torch.randn(len(y), D, generator=g), y)

    return Episode(labelled(n_shot), labelled(n_query), N_WAY)


def mean_log_sigmoid(mean: float, variance: float) -> float:
    s = np.sqrt(variance)
    value, _ = quad(lambda t: -np.logaddexp(0, -(mean + s * t)) * np.exp(-t * t / 2), -12, 12, epsabs=1e-12)
    return value / np.sqrt(2 * np.pi)
