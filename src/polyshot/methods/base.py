"""The contract of a few-shot method: how it learns from episodes, and how it classifies given a support set.

A new method is one file with a subclass of `FewShotMethod` that opens with its citation, and one line in
`methods/__init__.py`; the contract tests, training, evaluation and the command line pick it up from there. It writes

- `__init__(self, space, backbone=None, *, option: type = default, ...)`: the options appear in `polyshot methods`;
- `loss(episode, rng)`: what training minimises;
- `condition(support, n_way, rng)`: a function from queries to a Prediction, given a support set.

Randomness comes from the numpy generator alone. `condition` and what it returns run in evaluation mode and without
gradients (MAML and its kin enable them for their inner steps), and answer each query as if it were the only one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from polyshot.errors import InputError
from polyshot.gp import Seed, as_generator
from polyshot.methods.backbones import Conv4
from polyshot.task import Episode, LabelledSet, Prediction, Space

QueryFunction: TypeAlias = Callable[[Tensor], Prediction]
_ROWS = 1024  # queries that go through the network at once


class FewShotMethod(nn.Module):
    """Base of all methods.

    trains_on: "episodes", or "batches" of all training classes for methods that train a plain classifier first
    (a batch is an Episode with an empty query set and n_way = n_classes).
    embeds_once: the backbone does not change with the support set, so that each example's features can be kept.
    meta_batch: episodes a training step unless the user says otherwise.
    """

    trains_on: ClassVar[Literal["episodes", "batches"]] = "episodes"
    embeds_once: ClassVar[bool] = True
    meta_batch: ClassVar[int] = 1

    def __init__(self, space: Space, backbone: nn.Module | None = None) -> None:
        super().__init__()
        self.space = space
        self.backbone = self.default_backbone(space) if backbone is None else backbone

    @classmethod
    def default_backbone(cls, space: Space) -> nn.Module:
        """Conv4 for images, nothing for embeddings."""
        return nn.Identity() if space.kind == "embeddings" else Conv4(space.shape[0])

    @property
    def learns(self) -> bool:
        """Whether there are weights on these data: prototypes of given embeddings have none."""
        return any(True for _ in self.parameters())

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """What training minimises, a scalar."""
        raise NotImplementedError

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Condition on a support set: a function from queries [Q, ...] to their Prediction."""
        raise NotImplementedError

    def adapt(self, support: LabelledSet, n_way: int, seed: Seed = 0) -> "Predictor":
        """Condition on a support set: x [N, ...], y [N] in 0..n_way-1, balanced or not."""
        support = check_support(support, n_way)
        with evaluating(self):
            return Predictor(self, self.condition(support, n_way, as_generator(seed)), support.x.shape[1:])

    def losses(self, episodes: Sequence[Episode], rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        """The losses of the episodes of one step, [B] in all, in as many pieces as memory is best served by."""
        for k in averaged_statistics(self, len(episodes)):
            yield self.loss(episodes[k], rngs[k])[None]

    def predict_episodes(self, episodes: Sequence[Episode], seeds: Sequence[Seed]) -> list[Prediction]:
        """Adapt to each episode's support set and predict its queries."""
        return [
            self.adapt(episode.support, episode.n_way, seed)(episode.query.x)
            for episode, seed in zip(episodes, seeds, strict=True)
        ]

    def calibrate(self, episodes: Sequence[Episode]) -> None:
        """Choose what only prediction has, if there is anything, by validation episodes."""

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """The optimiser's groups; a method may give some parameters another rate."""
        return [{"params": list(self.parameters()), "lr": learning_rate}]


class Predictor:
    """A method conditioned on a support set: queries [Q, ...] to log_probs and scores [Q, C]."""

    def __init__(self, method: FewShotMethod, query: QueryFunction, shape: torch.Size) -> None:
        self._method = method
        self._query = query
        self._shape = shape

    def __call__(self, x: Tensor) -> Prediction:
        """Predict every query, each as if it were the only one."""
        if x.shape[1:] != self._shape:
            raise InputError(f"queries must be [Q, {', '.join(map(str, self._shape))}], not {list(x.shape)}")
        if not bool(torch.isfinite(x).all()):
            raise InputError("the queries hold NaN or infinity")
        with evaluating(self._method):
            parts = [self._query(rows) for rows in torch.split(x, _ROWS)] if len(x) else []
        if not parts:
            raise InputError("there is no query; at least one row is needed")
        variances = [p.variance for p in parts if p.variance is not None]
        log_probs, scores = torch.cat([p.log_probs for p in parts]), torch.cat([p.scores for p in parts])
        return Prediction(log_probs, scores, torch.cat(variances) if variances else None)


def check_support(support: LabelledSet, n_way: int) -> LabelledSet:
    """The support set, if it has examples of each of at least two classes."""
    x, y = support
    if n_way < 2:
        raise InputError(f"classification needs at least two classes, n_way is {n_way}")
    if len(x) == 0 or x.ndim < 2 or y.shape != x.shape[:1]:
        raise InputError(f"a support set is x [N, ...] with labels y [N], N > 0; got {list(x.shape)}, {list(y.shape)}")
    if not bool(torch.isfinite(x).all()):
        raise InputError("the support set holds NaN or infinity")
    labels = sorted(set(y.tolist()))
    if y.is_floating_point() or labels != list(range(n_way)):
        raise InputError(
            f"a {n_way}-way support set has examples of each class 0..{n_way - 1}; its labels are {labels}"
        )
    return LabelledSet(x, y.long())


def feature_shape(backbone: nn.Module, space: Space) -> tuple[int, ...]:
    """The shape of one example's features."""
    with evaluating(backbone):
        return tuple(backbone(torch.zeros(2, *space.shape)).shape[1:])


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside, what it was afterwards."""
    was_training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in was_training.items():
            part.training = training


def averaged_statistics(module: nn.Module, n: int) -> Iterator[int]:
    """Count 0..n-1; every count begins with the same running statistics, and their mean is kept at the end.

    So the episodes of a step leave the same statistics in whatever order, and however many processes, they run.
    """
    # .data, because backward of batch normalisation, which does not use them, would object to the change
    buffers = [b.data for b in module.buffers() if b.is_floating_point()]
    first = [b.clone() for b in buffers]
    total = [torch.zeros_like(b) for b in buffers]
    for k in range(n):
        for b, start in zip(buffers, first, strict=True):
            b.copy_(start)
        yield k
        for b, t in zip(buffers, total, strict=True):
            t += b / n
    for b, t in zip(buffers, total, strict=True):
        b.copy_(t)
