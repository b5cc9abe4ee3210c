"""MAML: Finn, Abbeel & Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017.

All weights take a few steps of gradient descent on the support set's cross-entropy; training minimises the queries'
cross-entropy afterwards with respect to the start, through the steps. The last layer starts at zero, so that no class
is preferred and any number of ways is possible: learning one start for all classes (Ye & Chao, "How to Train Your MAML
to Excel in Few-Shot Classification", ICLR 2022) comes to the same, because what all classes share cancels in the
softmax and in its gradients; Kao et al. ("MAML is a Noisy Contrastive Learner", ICLR 2022) found that zero helps.
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, linear, log_softmax

from polyshot.errors import InputError
from polyshot.methods.backbones import Conv4, support_rows
from polyshot.methods.base import FewShotMethod, QueryFunction
from polyshot.methods.inner_loop import Tensors, check_positive, gradient_step, n_features
from polyshot.system.settings import check_choices
from polyshot.task import Episode, LabelledSet, Prediction, Space


class MAML(FewShotMethod):
    """Gradient descent on the support set from a learned start.

    n_steps and inner_rate are the protocol's unless given: 5 steps of 0.01 for natural images, else 1 of 0.1.
    head="per-class" is the original, a learned start for each of exactly n_way classes.
    """

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
    ) -> None:
        super().__init__(space, backbone)
        protocol = (5, 0.01) if space.kind == "natural" else (1, 0.1)
        self.n_steps = protocol[0] if n_steps is None else n_steps
        self.inner_rate = protocol[1] if inner_rate is None else inner_rate
        check_positive("maml", n_steps=self.n_steps, inner_rate=self.inner_rate, n_way=n_way)
        self.first_order = first_order
        check_choices("maml", type(self), head=head)
        self.n_features = n_features(self.backbone, space)
        self.head = nn.Linear(self.n_features, n_way) if head == "per-class" else None

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
        """The weights after the inner steps; the support set is kept for its statistics."""
        with torch.enable_grad():
            adapted = self._descend(support, n_way, second_order=False)
        adapted = {name: p.detach() for name, p in adapted.items()}

        def query(x: Tensor) -> Prediction:
            scores = self._query_logits(adapted, support.x, x)
            return Prediction(log_softmax(scores, -1), scores)

        return query

    def _start(self, n_way: int, like: Tensor) -> Tensors:
        """The weights before the first step, by their names in the method: backbone.*, head.weight, head.bias."""
        start: Tensors = {name: p for name, p in self.named_parameters() if p.requires_grad}
        if self.head is None:
            start["head.weight"] = like.new_zeros(n_way, self.n_features, requires_grad=True)
            start["head.bias"] = like.new_zeros(n_way, requires_grad=True)
        elif n_way != self.head.out_features:
            raise InputError(
                f"maml with head=per-class is for {self.head.out_features} ways here, not {n_way}; head=zero takes any"
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
        with support_rows(self.backbone, len(support)):
            return self._logits(weights, torch.cat([support, query]))[len(support) :]

    def _logits(self, weights: Tensors, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n c"]:
        backbone = {name.removeprefix("backbone."): w for name, w in weights.items() if name.startswith("backbone.")}
        features = functional_call(self.backbone, backbone, (x,))
        return linear(features, weights["head.weight"], weights["head.bias"])
