"""Anderson acceleration of a fixed-point iteration x <- g(x) (type II; Walker & Ni 2011), with backtracking."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_WORSE = 2.0


class Anderson:
    """Combine the last steps so that their residual is smallest, and take the step that belongs to it.

    If the residual grows to twice the smallest so far, return to the best point and continue with half the step.

    Parameters
    ----------
    depth : int
        The number of earlier steps to combine.
    """

    def __init__(self, depth: int = 5) -> None:
        self.depth, self.share, self.least = depth, 1.0, float("inf")
        self.best: tuple[Tensor, Tensor] | None = None
        self.last: tuple[Tensor, Tensor] | None = None
        self.n_differences = 0
        self.differences = torch.empty(
            2, 0, 0
        )  # of the points and of their residuals, [2, depth, k], oldest overwritten

    def step(self, x: Float[Tensor, "k"], image: Float[Tensor, "k"]) -> Float[Tensor, "k"]:
        """Return the next point, given x and g(x)."""
        residual = image - x
        norm = float(torch.linalg.vector_norm(residual))
        if self.best is not None and not norm <= _WORSE * self.least:
            self.last, self.n_differences, self.share = None, 0, self.share / 2
            return self.best[0] + self.share * self.best[1]
        if norm < self.least:
            self.least, self.best = norm, (x, residual)
        before, self.last = self.last, (x, residual)
        plain = torch.add(x, residual, alpha=self.share)
        if before is None or not math.isfinite(norm):
            return plain
        if not self.differences.numel():
            self.differences = x.new_empty(2, self.depth, len(x))
        place = self.n_differences % self.depth
        torch.sub(x, before[0], out=self.differences[0, place])
        torch.sub(residual, before[1], out=self.differences[1, place])
        self.n_differences += 1
        dX, dF = self.differences[:, : min(self.n_differences, self.depth)]
        gram = dF @ dF.mT
        gram.diagonal().add_(1e-8 * gram.trace() + 1e-300)
        weights = torch.cholesky_solve((dF @ residual)[:, None], torch.linalg.cholesky(gram)).squeeze(-1)
        return plain.sub_(weights @ dX).sub_(weights @ dF, alpha=self.share)
