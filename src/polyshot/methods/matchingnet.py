"""Matching networks: Vinyals, Blundell, Lillicrap, Kavukcuoglu & Wierstra, "Matching Networks for One Shot
Learning", NeurIPS 2016.

A query attends to the support examples by cosine similarity. A class's probability is the total attention that its
examples receive. Full-context embeddings (fce) make the features depend on the whole support set: a bidirectional LSTM
runs over the support examples, and another LSTM reads the support set several times for each query.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import log_softmax, nll_loss, normalize

from polyshot.methods.backbones import Init
from polyshot.methods.base import FewShotMethod, QueryFunction, n_features
from polyshot.methods.inner_loop import ranks_of_appearance
from polyshot.task import Episode, LabelledSet, Prediction, Space


class MatchingNet(FewShotMethod):
    """Attention over the support set.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    fce : bool
        Whether to use full-context embeddings.
    n_reads : int, optional
        How often a query's LSTM reads the support set. By default once per support example.
    scale : float
        Factor on the cosine similarities before the softmax.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "MatchingNet"
    citation = (
        'Vinyals, Blundell, Lillicrap, Kavukcuoglu & Wierstra, "Matching Networks for One Shot Learning", NeurIPS 2016'
    )
    paper_options: ClassVar[Mapping[str, Any]] = {"init": "he-fan-out"}

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        fce: bool = True,
        n_reads: int | None = None,
        scale: float = 100.0,
        init: Init = "torch",
    ) -> None:
        super().__init__(space, backbone, init)
        self.check_positive(scale=scale, n_reads=1 if n_reads is None else n_reads)
        self.n_reads = n_reads
        self.scale = scale
        d = n_features(self.backbone, space)
        self.support_lstm = nn.LSTM(d, d, bidirectional=True) if fce else None
        self.query_lstm = nn.LSTMCell(2 * d, d) if fce else None

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Minus the log-probability of the queries' classes; support and query go through the network in one batch."""
        support, query = episode.support, episode.query
        features = self.backbone(torch.cat([support.x, query.x]))
        context = self.support_context(features[: len(support.x)], support.y, episode.n_way)
        scores = self.class_scores(features[len(support.x) :], context, support.y, episode.n_way)
        return nll_loss(log_softmax(scores, -1), query.y)

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Keep the embeddings of the support set."""
        context = self.support_context(self.backbone(support.x), support.y, n_way)

        def query(x: Tensor) -> Prediction:
            scores = self.class_scores(self.backbone(x), context, support.y, n_way)
            return Prediction(log_softmax(scores, -1), scores)

        return query

    def support_context(self, features: Float[Tensor, "n d"], y: Int[Tensor, "n"], n_way: int) -> Float[Tensor, "n d"]:
        """g(x_i, S): the features plus the LSTM's outputs in both directions.

        The LSTM sees one class after another, as in training, whatever the order of the examples and class numbers.
        """
        if self.support_lstm is None:
            return features
        order = ranks_of_appearance(y, n_way)[y].argsort(stable=True)
        forward, backward = self.support_lstm(features[order])[0].chunk(2, dim=-1)
        return features.index_add(0, order, forward + backward)

    def query_context(self, features: Float[Tensor, "q d"], context: Float[Tensor, "n d"]) -> Float[Tensor, "q d"]:
        """f(x, S): an LSTM whose input in each step is the features and what it reads from the support set."""
        if self.query_lstm is None:
            return features
        h, c = features, torch.zeros_like(features)
        for _ in range(len(context) if self.n_reads is None else self.n_reads):
            read = torch.softmax(h @ context.T, -1) @ context
            h, c = self.query_lstm(torch.cat([features, read], -1), (h, c))
            h = h + features
        return h

    def class_scores(
        self, features: Float[Tensor, "q d"], context: Float[Tensor, "n d"], y: Int[Tensor, "n"], n_way: int
    ) -> Float[Tensor, "q c"]:
        """log of the sum of exp(scale * cosine) over each class's examples; its softmax is the attention per class."""
        similarity = (
            self.scale * normalize(self.query_context(features, context), dim=-1) @ normalize(context, dim=-1).T
        )
        of_class = y == torch.arange(n_way, device=y.device)[:, None]
        return torch.where(of_class, similarity[:, None, :], -torch.inf).logsumexp(-1)
