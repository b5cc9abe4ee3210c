"""Two ways from one sweep of tied expectation propagation to the next: accelerated, or damped and safe."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polyshot.gp.inference.anderson import Anderson
from polyshot.gp.inference.moment_matching import SMALLEST_OMEGA, TiedMatch

TiedSites = tuple[Float[Tensor, "n"], Float[Tensor, "n c"]]
"""The shared precisions w, and kappa."""
LOG_SMALLEST_OMEGA, LARGEST_LOG_OMEGA = float(np.log(SMALLEST_OMEGA)), 3.0
_SHORTEST_ACCELERATED, _SHORTEST_DAMPED = 0.05, 0.1


class AcceleratedSteps:
    """Anderson acceleration in the coordinates log w and kappa / w, after one plain step.

    Every point on the line between two sets of sites is sensible in these coordinates.

    Attributes
    ----------
    share : float
        The current step as a share of a full step.
    """

    def __init__(
        self, there: Bool[Tensor, "n c"], unit: Float[Tensor, "n c"], example_weights: Float[Tensor, "n"]
    ) -> None:
        self.there, self.unit = there, unit
        self.root = example_weights.sqrt()[:, None]  # an example of weight two moves as two examples would
        self.history: Anderson | None = None

    @property
    def share(self) -> float:
        """1 until the first failure; every failure halves it."""
        return 1.0 if self.history is None else self.history.share

    def next(self, sites: TiedSites, matched: TiedMatch, grew: bool) -> TiedSites | None:
        """Return the next sites, or None if the steps have become too short to get anywhere."""
        if self.history is None:
            self.history = Anderson()
            return matched.w, matched.kappa
        now, image = (
            self.root * torch.cat([w.log()[:, None], kappa / w[:, None] / self.unit], 1)
            for w, kappa in (sites, matched[:2])
        )
        point = self.history.step(now.flatten(), image.flatten()).reshape(now.shape) / self.root
        if self.share < _SHORTEST_ACCELERATED:
            return None
        w = point[:, 0].clamp(LOG_SMALLEST_OMEGA, LARGEST_LOG_OMEGA).exp()
        return w, torch.where(self.there, point[:, 1:] * self.unit * w[:, None], 0.0)


class DampedSteps:
    """Plain steps in w and kappa, halved whenever psi moves further than in the step before."""

    def __init__(self) -> None:
        self.share = 1.0

    def next(self, sites: TiedSites, matched: TiedMatch, grew: bool) -> TiedSites:
        """Return the next sites. Examples with an improper cavity have their sites halved instead."""
        if grew:
            self.share = max(self.share / 2, _SHORTEST_DAMPED)
        (w, kappa), (new_w, new_kappa, improper, *_) = sites, matched
        new_w = torch.where(improper, w / 2, new_w)
        new_kappa = torch.where(improper[:, None], kappa / 2, new_kappa)
        return w + self.share * (new_w - w), kappa + self.share * (new_kappa - kappa)
