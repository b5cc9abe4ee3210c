"""Anderson acceleration of a fixed-point iteration x <- g(x) (type II; Walker & Ni 2011), with backtracking."""

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
        self.points: list[Tensor] = []
        self.residuals: list[Tensor] = []

    def step(self, x: Float[Tensor, "k"], image: Float[Tensor, "k"]) -> Float[Tensor, "k"]:
        """Return the next point, given x and g(x)."""
        residual = image - x
        norm = float(torch.linalg.vector_norm(residual))
        if self.best is not None and not norm <= _WORSE * self.least:
            self.points, self.residuals, self.share = [], [], self.share / 2
            return self.best[0] + self.share * self.best[1]
        if norm < self.least:
            self.least, self.best = norm, (x, residual)
        self.points, self.residuals = [*self.points[-self.depth :], x], [*self.residuals[-self.depth :], residual]
        plain = x + self.share * residual
        if len(self.points) == 1:
            return plain
        dX, dF = torch.stack(self.points, 1).diff(dim=1), torch.stack(self.residuals, 1).diff(dim=1)
        gram = dF.mT @ dF
        gram.diagonal().add_(1e-8 * gram.trace() + 1e-300)
        weights = torch.cholesky_solve((dF.mT @ residual)[:, None], torch.linalg.cholesky(gram))
        return plain - ((dX + self.share * dF) @ weights).squeeze(-1)
