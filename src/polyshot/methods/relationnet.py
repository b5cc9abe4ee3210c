"""Relation networks: Sung, Yang, Zhang, Xiang, Torr & Hospedales, "Learning to Compare: Relation Network for
Few-Shot Learning", CVPR 2018.

The feature map of a query is concatenated with the feature map of a class (the mean over its support examples). A
small network, trained together with the features, scores how well they match, between 0 and 1. Training minimises the
squared error to 1 for the query's class and 0 for the others.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, mse_loss, one_hot

from polyshot.methods.backbones import Conv4, Init, initialise
from polyshot.methods.base import FewShotMethod, QueryFunction, feature_shape
from polyshot.methods.protonet import prototypes
from polyshot.task import Episode, LabelledSet, Prediction, Space

_WIDTH, _HIDDEN = 64, 8


class RelationNet(FewShotMethod):
    """A learned comparison of query maps and class maps.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one map or vector per example. By default `network` for images.
    loss : {"mse", "softmax"}
        "mse" is the squared error of scores between 0 and 1, "softmax" the cross-entropy of scores without a sigmoid.
    network : {"two-pools", "conv4"}
        The default backbone: the original's, whose last two blocks do not pool, or Conv4 without flattening.
    statistics : {"running", "last"}
        What the relation module's batch normalisation uses in evaluation: running averages, or the statistics of the
        last training batch, as the public code does.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone and of the relation module start: as torch's default, or as in the
        paper's public code.
    """

    title = "RelationNet"
    citation = (
        'Sung, Yang, Zhang, Xiang, Torr & Hospedales, "Learning to Compare: Relation Network for Few-Shot Learning", '
        "CVPR 2018"
    )
    paper_options: ClassVar[Mapping[str, Any]] = {"statistics": "last", "init": "he-fan-out"}

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        loss: Literal["mse", "softmax"] = "mse",
        network: Literal["two-pools", "conv4"] = "two-pools",
        statistics: Literal["running", "last"] = "running",
        init: Init = "torch",
    ) -> None:
        self.check_choices(loss=loss, network=network, statistics=statistics)
        if backbone is None and network == "conv4" and space.kind != "embeddings":
            backbone = Conv4(space.shape[0], flatten=False, init=init)
        super().__init__(space, backbone, init)
        self.loss_type = loss
        self.relation = RelationModule(feature_shape(self.backbone, space), 1.0 if statistics == "last" else 0.1)
        initialise(self.relation, init)

    @classmethod
    def default_backbone(cls, space: Space) -> nn.Module:
        """The original's network: Conv4 that pools twice, without flattening."""
        return nn.Identity() if space.kind == "embeddings" else Conv4(space.shape[0], flatten=False, pools=2)

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Squared error or cross-entropy; support and query go through the network in one batch."""
        support, query = episode.support, episode.query
        features = self.backbone(torch.cat([support.x, query.x])).flatten(1)
        classes = prototypes(features[: len(support.x)], support.y, episode.n_way)
        scores = self.scores(features[len(support.x) :], classes)
        if self.loss_type == "softmax":
            return cross_entropy(scores, query.y)
        return mse_loss(scores, one_hot(query.y, episode.n_way).to(scores))

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Keep the class maps."""
        classes = prototypes(self.backbone(support.x).flatten(1), support.y, n_way)

        def query(x: Tensor) -> Prediction:
            scores = self.scores(self.backbone(x).flatten(1), classes)
            # Also right for "mse": a Gaussian likelihood of unit variance, N(e_c | scores, I), normalised over c.
            return Prediction(log_softmax(scores, -1), scores)

        return query

    def scores(self, x: Float[Tensor, "q d"], classes: Float[Tensor, "c d"]) -> Float[Tensor, "q c"]:
        """The relation score of every query with every class, between 0 and 1 for "mse"."""
        scores: Tensor = self.relation(x, classes)
        return scores.sigmoid() if self.loss_type == "mse" else scores


class RelationModule(nn.Module):
    """Two convolution blocks and two linear layers on the maps of each pair; feature vectors are 1x1 maps."""

    def __init__(self, shape: tuple[int, ...], momentum: float = 0.1) -> None:
        super().__init__()
        self.map_shape = (*shape, 1, 1)[:3]
        channels, *side = self.map_shape
        padded = max(side) < 10  # the original's rule
        blocks: list[nn.Module] = []
        for n_channels in (2 * channels, _WIDTH):
            kernel = [min(3, 2 * s - 1) for s in side] if padded else [min(3, s) for s in side]
            side = side if padded else [s - k + 1 for s, k in zip(side, kernel, strict=True)]
            pool = [min(2, s) for s in side]
            blocks += [
                nn.Conv2d(n_channels, _WIDTH, (kernel[0], kernel[1]), padding="same" if padded else 0),
                nn.BatchNorm2d(_WIDTH, momentum=momentum),
                nn.ReLU(),
                nn.MaxPool2d((pool[0], pool[1])),
            ]
            side = [s // p for s, p in zip(side, pool, strict=True)]
        flat = _WIDTH * side[0] * side[1]
        self.layers = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(flat, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))

    def forward(self, x: Float[Tensor, "q d"], classes: Float[Tensor, "c d"]) -> Float[Tensor, "q c"]:
        """A score for every query with every class; x and classes are flattened maps."""
        q, c = len(x), len(classes)
        class_maps, maps = (flat.view(-1, *self.map_shape) for flat in (classes, x))
        pairs = torch.cat([class_maps.repeat(q, 1, 1, 1), maps.repeat_interleave(c, 0)], dim=1)
        scores: Tensor = self.layers(pairs)
        return scores.view(q, c)
