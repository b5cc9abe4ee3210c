"""Anderson's acceleration of a fixed-point iteration x <- g(x) (type II; Walker & Ni 2011)."""

import torch
from jaxtyping import Float
from torch import Tensor


class Anderson:
    """Keeps the last steps; combines their residuals to the smallest, and takes the step that belongs to it."""

    def __init__(self, depth: int = 5) -> None:
        self.depth = depth
        self.points: list[Tensor] = []
        self.residuals: list[Tensor] = []

    def step(self, x: Float[Tensor, "k"], image: Float[Tensor, "k"]) -> Float[Tensor, "k"]:
        """The next point, from x and g(x)."""
        self.points, self.residuals = [*self.points[-self.depth :], x], [*self.residuals[-self.depth :], image - x]
        if len(self.points) == 1:
            return image
        dX, dF = torch.stack(self.points, 1).diff(dim=1), torch.stack(self.residuals, 1).diff(dim=1)
        gram = dF.mT @ dF
        gram.diagonal().add_(1e-8 * gram.trace() + 1e-300)
        share = torch.cholesky_solve((dF.mT @ self.residuals[-1])[:, None], torch.linalg.cholesky(gram))
        return image - ((dX + dF) @ share).squeeze(-1)
