"""Prototypical networks: Snell, Swersky & Zemel, "Prototypical Networks for Few-shot Learning", NeurIPS 2017.

A class's prototype is the mean feature vector of its support examples. A query's logits are minus its squared
Euclidean distances to the prototypes. Training minimises the cross-entropy of the queries.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from polyshot.methods.backbones import Init
from polyshot.methods.base import FewShotMethod, QueryFunction, n_features
from polyshot.task import Episode, LabelledSet, Prediction, Space


class ProtoNet(FewShotMethod):
    """Softmax over negative squared distances to class means.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "ProtoNet"
    citation = 'Snell, Swersky & Zemel, "Prototypical Networks for Few-shot Learning", NeurIPS 2017'
    paper_options: ClassVar[Mapping[str, Any]] = {"init": "he-fan-out"}

    def __init__(self, space: Space, backbone: nn.Module | None = None, *, init: Init = "torch") -> None:
        super().__init__(space, backbone, init)
        n_features(self.backbone, space)  # refuses a backbone that does not return vectors

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Cross-entropy of the queries; support and query go through the network in one batch."""
        support, query = episode.support, episode.query
        features = self.backbone(torch.cat([support.x, query.x]))
        centres = prototypes(features[: len(support.x)], support.y, episode.n_way)
        return cross_entropy(negative_distances(features[len(support.x) :], centres), query.y)

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Keep the prototypes."""
        centres = prototypes(self.backbone(support.x), support.y, n_way)

        def query(x: Tensor) -> Prediction:
            scores = negative_distances(self.backbone(x), centres)
            return Prediction(log_softmax(scores, -1), scores)

        return query


def prototypes(features: Float[Tensor, "n d"], y: Int[Tensor, "n"], n_way: int) -> Float[Tensor, "c d"]:
    """The mean of each class's features."""
    total = features.new_zeros(n_way, features.shape[-1]).index_add(0, y, features)
    return total / torch.bincount(y, minlength=n_way)[:, None]


def negative_distances(x: Float[Tensor, "q d"], centres: Float[Tensor, "c d"]) -> Float[Tensor, "q c"]:
    """-|x - centre|^2 for every pair."""
    return -(x[:, None, :] - centres).square().sum(-1)
