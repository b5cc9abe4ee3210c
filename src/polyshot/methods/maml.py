"""MAML: Finn, Abbeel & Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017.

All weights take a few steps of gradient descent on the support set's cross-entropy. Training minimises the queries'
cross-entropy after these steps with respect to the starting weights, through the steps. The last layer starts at zero,
so that no class is preferred and any number of ways is possible. One learned start shared by all classes (Ye & Chao,
"How to Train Your MAML to Excel in Few-Shot Classification", ICLR 2022) has the same effect, because what all classes
share cancels in the softmax and in its gradients. Kao et al. ("MAML is a Noisy Contrastive Learner", ICLR 2022) found
that zero helps.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, linear, log_softmax

from polyshot.errors import InputError
from polyshot.methods.backbones import Conv4, Init, support_rows
from polyshot.methods.base import FewShotMethod, QueryFunction, n_features
from polyshot.methods.inner_loop import Tensors, gradient_step
from polyshot.task import Episode, LabelledSet, Prediction, Space


class MAML(FewShotMethod):
    """Gradient descent on the support set from learned starting weights.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 with the support set's statistics for images.
    n_steps : int, optional
        Gradient steps per task. By default the paper's: 5 for photographs, otherwise 1.
    inner_rate : float, optional
        Learning rate of these steps. By default the paper's: 0.01 for photographs, otherwise 0.1.
    first_order : bool
        Whether training ignores the gradient of the gradient.
    head : {"zero", "per-class"}
        Where the last layer starts: at zero, or at learned weights per class as in the original.
    n_way : int
        The number of classes of head="per-class".
    statistics : {"support", "query"}
        What batch normalisation uses for the queries: the support set's statistics, or those of all queries together as
        in the original. Then a query's prediction depends on the other queries.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "MAML"
    citation = 'Finn, Abbeel & Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017'
    paper_options: ClassVar[Mapping[str, Any]] = {"head": "per-class", "statistics": "query", "init": "he-fan-out"}
    embeds_once = False
    meta_batch = 4

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        n_steps: int | None = None,
        inner_rate: float | None = None,
        first_order: bool = False,
        head: Literal["zero", "per-class"] = "zero",
        n_way: int = 5,
        statistics: Literal["support", "query"] = "support",
        init: Init = "torch",
    ) -> None:
        super().__init__(space, backbone, init)
        protocol = (5, 0.01) if space.kind == "natural" else (1, 0.1)
        self.n_steps = protocol[0] if n_steps is None else n_steps
        self.inner_rate = protocol[1] if inner_rate is None else inner_rate
        self.check_positive(n_steps=self.n_steps, inner_rate=self.inner_rate, n_way=n_way)
        self.check_choices(head=head, statistics=statistics)
        self.first_order = first_order
        self.statistics = statistics
        self.n_features = n_features(self.backbone, space)
        self.head = nn.Linear(self.n_features, n_way) if head == "per-class" else None
        if self.head is not None:
            nn.init.zeros_(self.head.bias)

    @classmethod
    def default_backbone(cls, space: Space) -> nn.Module:
        """Conv4 with the support set's statistics."""
        return nn.Identity() if space.kind == "embeddings" else Conv4(space.shape[0], norm="support")

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Cross-entropy of the queries after the inner steps."""
        support, query, n_way = episode
        adapted = self._descend(support, n_way, second_order=not self.first_order)
        return cross_entropy(self._query_logits(adapted, support.x, query.x), query.y)

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Keep the weights after the inner steps, and the support set for its statistics."""
        with torch.enable_grad():
            adapted = self._descend(support, n_way, second_order=False)
        adapted = {name: p.detach() for name, p in adapted.items()}

        def query(x: Tensor) -> Prediction:
            scores = self._query_logits(adapted, support.x, x)
            return Prediction(log_softmax(scores, -1), scores)

        return query

    def _start(self, n_way: int, like: Tensor) -> Tensors:
        """The starting weights by their names in the method: backbone.*, head.weight, head.bias."""
        start: Tensors = {name: p for name, p in self.named_parameters() if p.requires_grad}
        if self.head is None:
            start["head.weight"] = like.new_zeros(n_way, self.n_features, requires_grad=True)
            start["head.bias"] = like.new_zeros(n_way, requires_grad=True)
        elif n_way != self.head.out_features:
            raise InputError(
                f"MAML with head=per-class was built for n_way={self.head.out_features}, not {n_way}; train it with "
                f"n_way={n_way}, or with head=zero, which takes any number of ways"
            )
        return start

    def _descend(self, support: LabelledSet, n_way: int, second_order: bool) -> Tensors:
        weights = self._start(n_way, support.x)
        for _ in range(self.n_steps):
            weights = gradient_step(
                lambda w: cross_entropy(self._logits(w, support.x), support.y), weights, self.inner_rate, second_order
            )
        return weights

    def _query_logits(self, weights: Tensors, support: Tensor, query: Tensor) -> Tensor:
        if self.statistics == "query":
            return self._logits(weights, query)
        with support_rows(self.backbone, len(support)):
            return self._logits(weights, torch.cat([support, query]))[len(support) :]

    def _logits(self, weights: Tensors, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n c"]:
        backbone = {name.removeprefix("backbone."): w for name, w in weights.items() if name.startswith("backbone.")}
        features = functional_call(self.backbone, backbone, (x,))
        return linear(features, weights["head.weight"], weights["head.bias"])
