"""Feature Transfer: Chen, Liu, Kira, Wang & Huang, "A Closer Look at Few-shot Classification", ICLR 2019 ("Baseline").

A network and a linear layer learn to classify all training classes, in batches. For a new task the network is frozen.
A new linear layer for the task's classes is trained on the support set by 100 passes of stochastic gradient descent.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, log_softmax

from polyshot.errors import InputError
from polyshot.methods.backbones import Init
from polyshot.methods.base import FewShotMethod, QueryFunction, n_features
from polyshot.task import Episode, LabelledSet, Prediction, Space

Array: TypeAlias = npt.NDArray[np.float64]
_BATCH, _MOMENTUM, _DAMPENING, _DECAY = 4, 0.9, 0.9, 1e-3


class FeatureTransfer(FewShotMethod):
    """A classifier of all training classes, then a new linear layer per task.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    n_passes : int
        Passes over the support set that train the new layer.
    inner_rate : float
        Learning rate of the new layer.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "Feature Transfer"
    citation = (
        'Chen, Liu, Kira, Wang & Huang, "A Closer Look at Few-shot Classification", ICLR 2019 (there called "Baseline")'
    )
    trains_on: ClassVar[Literal["episodes", "batches"]] = "batches"
    paper_options: ClassVar[Mapping[str, Any]] = {"init": "he-fan-out"}

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        n_passes: int = 100,
        inner_rate: float = 0.01,
        init: Init = "torch",
    ) -> None:
        super().__init__(space, backbone, init)
        self.check_positive(n_passes=n_passes, inner_rate=inner_rate)
        self.n_passes = n_passes
        self.inner_rate = inner_rate
        self.classifier = self.new_classifier(n_features(self.backbone, space), space.n_classes)

    def new_classifier(self, n_features: int, n_classes: int) -> nn.Module:
        """The layer on top of the network in training."""
        return nn.Linear(n_features, n_classes)

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Mean cross-entropy of all examples, support and query."""
        if episode.n_way > self.space.n_classes:
            raise InputError(
                f"the classifier was built for {self.space.n_classes} classes, the batch has {episode.n_way}; build "
                "the method with that Space.n_classes"
            )
        x, y = (torch.cat(parts) for parts in zip(episode.support, episode.query, strict=True))
        return cross_entropy(self.classifier(self.backbone(x)), y)

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Train the new layer; the network does not change."""
        classify = self.fit(self.backbone(support.x), support.y, n_way, rng)

        def query(x: Tensor) -> Prediction:
            scores = classify(self.backbone(x))
            return Prediction(log_softmax(scores, -1), scores)

        return query

    def fit(
        self, features: Float[Tensor, "n d"], y: Int[Tensor, "n"], n_way: int, rng: np.random.Generator
    ) -> Callable[[Tensor], Tensor]:
        """Softmax regression from zero weights; returns a function from features [Q, d] to scores [Q, n_way]."""
        X, Y = features.double().cpu().numpy(), np.eye(n_way)[y.cpu().numpy()]
        X = np.column_stack([X, np.ones(len(X))])  # the bias is the weight of a constant feature
        W = np.zeros((n_way, X.shape[1]))

        def gradient(X: Array, Y: Array) -> Array:
            return residuals(X @ W.T, Y).T @ X

        descend(W, gradient, X, Y, self.n_passes, self.inner_rate, rng)
        weight, bias = (torch.from_numpy(part).to(features) for part in (W[:, :-1], W[:, -1]))
        return lambda x: linear(x, weight, bias)


def residuals(scores: Array, Y: Array) -> Array:
    """The gradient of the mean cross-entropy with respect to the scores [n, C]; Y is one-hot."""
    P: Array = np.exp(scores - scores.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    P -= Y
    P /= len(Y)
    return P


def descend(
    weights: Array,
    gradient: Callable[[Array, Array], Array],
    X: Array,
    Y: Array,
    n_passes: int,
    rate: float,
    rng: np.random.Generator,
) -> None:
    """Stochastic gradient descent on `weights`, in place: the rule of torch.optim.SGD without autograd's overhead.

    `gradient(x, y)` is the gradient of the loss of a few examples. Each pass visits X [N, d], Y [N, C] in a new order.
    """
    velocity: Array | None = None
    for _ in range(n_passes):
        order = rng.permutation(len(X))
        X_pass, Y_pass = X[order], Y[order]
        for start in range(0, len(X), _BATCH):
            step = gradient(X_pass[start : start + _BATCH], Y_pass[start : start + _BATCH])
            step += _DECAY * weights
            if velocity is None:
                velocity = step
            else:
                velocity *= _MOMENTUM
                velocity += (1 - _DAMPENING) * step
            weights -= rate * velocity
