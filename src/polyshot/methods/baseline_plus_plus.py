"""Baseline++: Chen, Liu, Kira, Wang & Huang, "A Closer Look at Few-shot Classification", ICLR 2019.

Feature Transfer with a cosine classifier, both in training and for each new task. A class's logit is the cosine
between the features and the class's direction, times a learned length per class and a fixed scale.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from polyshot.methods.feature_transfer import Array, FeatureTransfer, descend, residuals
from polyshot.methods.inner_loop import ranks_of_appearance


class BaselinePlusPlus(FeatureTransfer):
    """A cosine classifier of all training classes, then a new one per task.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    n_passes : int
        Passes over the support set that train the new classifier.
    inner_rate : float
        Learning rate of the new classifier.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "Baseline++"
    citation = 'Chen, Liu, Kira, Wang & Huang, "A Closer Look at Few-shot Classification", ICLR 2019'

    def new_classifier(self, n_features: int, n_classes: int) -> nn.Module:
        """The cosine classifier of Chen et al., with weight normalisation."""
        return CosineClassifier(nn.Linear(n_features, n_classes, bias=False).weight.detach())

    def fit(
        self, features: Float[Tensor, "n d"], y: Int[Tensor, "n"], n_way: int, rng: np.random.Generator
    ) -> Callable[[Tensor], Tensor]:
        """Train directions and lengths; random starting directions go to the classes in order of appearance in y."""
        X, Y = normalize(features.double(), dim=-1).cpu().numpy(), np.eye(n_way)[y.cpu().numpy()]
        start = rng.uniform(-1, 1, (n_way, X.shape[1]))[ranks_of_appearance(y, n_way).cpu()] / np.sqrt(X.shape[1])
        layer = CosineClassifier(torch.from_numpy(start))
        weights = np.column_stack([start, np.linalg.norm(start, axis=1)])
        V, length = weights[:, :-1], weights[:, -1:]

        def gradient(X: Array, Y: Array) -> Array:
            norm = np.sqrt(np.einsum("cd,cd->c", V, V))[:, None]
            U = V / norm
            cosines = X @ U.T
            R = layer.scale * residuals(layer.scale * length.T * cosines, Y)
            by_length = np.einsum("nc,nc->c", R, cosines)[:, None]
            return np.concatenate([(length / norm) * (R.T @ X - by_length * U), by_length], axis=1)

        descend(weights, gradient, X, Y, self.n_passes, self.inner_rate, rng)
        layer.direction.data, layer.length.data = torch.from_numpy(V), torch.from_numpy(length[:, 0])
        return layer.to(features)


class CosineClassifier(nn.Module):
    """scale * length_c * cos(x, direction_c): features [n, d] to scores [n, C]."""

    def __init__(self, start: Float[Tensor, "c d"]) -> None:
        super().__init__()
        self.direction = nn.Parameter(start.clone())
        self.length = nn.Parameter(start.norm(dim=-1))
        # The values of Chen et al. With a thousand characters, a scale of 2 could not single out one of them.
        self.scale = 2.0 if len(start) <= 200 else 10.0

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Scores of features of any length."""
        return self.scale * self.length * (normalize(x, dim=-1) @ normalize(self.direction, dim=-1).T)
