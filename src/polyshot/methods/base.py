"""The contract of a few-shot method: how it learns from episodes, and how it classifies given a support set.

A new method is one file with a subclass of `FewShotMethod` and one line in `methods/__init__.py` (or a call of
`METHODS.register` in a module of your own). The contract tests, training, evaluation, tables and the command line then
know it. docs/methods/README.md has a skeleton. The subclass defines

- `title` and `citation`;
- `__init__(self, space, backbone=None, *, option: type = default, ...)`: the options appear in `polyshot methods`;
- `loss(episode, rng)`: what training minimises;
- `condition(support, n_way, rng)`: a function from queries to a Prediction, given a support set.

All randomness comes from the numpy generator. `condition` and the function it returns run in evaluation mode and
without gradients (methods with gradient steps per task enable them for those steps). Each query is answered as if it
were the only one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from polyshot.errors import InputError
from polyshot.gp import Seed, as_generator
from polyshot.methods.backbones import Conv4, Init, initialise
from polyshot.system.settings import check_choices, keyword_settings
from polyshot.task import Episode, LabelledSet, Prediction, Space

QueryFunction: TypeAlias = Callable[[Tensor], Prediction]
_ROWS = 1024  # queries that go through the network at once


class FewShotMethod(nn.Module):
    """Base class of all methods.

    Parameters
    ----------
    space : Space
        What the method is built for: the shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Turns examples into features. By default `default_backbone(space)`.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start (`Conv4`). A given backbone is left as it is.

    Attributes
    ----------
    title : str
        The method's name as the paper writes it.
    citation : str
        Who proposed the method: authors, title, venue and year.
    paper_options : mapping
        The options under which the method does what Snell & Zemel (2021) and their public code do.
    trains_on : {"episodes", "batches"}
        "batches" is for methods that first train a plain classifier of all training classes. A batch is an Episode
        with an empty query set and n_way = n_classes.
    embeds_once : bool
        Whether the backbone is the same for every support set, so that the features of each example can be kept.
    meta_batch : int
        Episodes per training step, unless the user says otherwise.
    title_options : tuple of str
        Options that `short_title` already names.
    """

    title: ClassVar[str]
    citation: ClassVar[str]
    trains_on: ClassVar[Literal["episodes", "batches"]] = "episodes"
    embeds_once: ClassVar[bool] = True
    meta_batch: ClassVar[int] = 1
    title_options: ClassVar[tuple[str, ...]] = ()
    paper_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, space: Space, backbone: nn.Module | None = None, init: Init = "torch") -> None:
        self.check_choices(init=init)
        super().__init__()
        self.space = space
        self.backbone = self.default_backbone(space) if backbone is None else backbone
        if backbone is None:
            initialise(self.backbone, init)

    @classmethod
    def default_backbone(cls, space: Space) -> nn.Module:
        """Conv4 for images, nothing for embeddings."""
        return nn.Identity() if space.kind == "embeddings" else Conv4(space.shape[0])

    @classmethod
    def full_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The given options, and the defaults of all others."""
        return {name: option.default for name, option in keyword_settings(cls).items()} | dict(options)

    @classmethod
    def kernel_title(cls, options: Mapping[str, Any]) -> str:
        """The title of the kernel that the options choose; empty for a method without kernels."""
        return ""

    @classmethod
    def short_title(cls, options: Mapping[str, Any]) -> str:
        """The row's label in the paper's tables: the title, for a GP with kernel and objective."""
        return cls.title

    @classmethod
    def row_title(cls, options: Mapping[str, Any]) -> str:
        """The full label of a table row: `short_title`, then every other option that is not the default."""
        defaults = cls.full_options({})
        given = [name for name in cls.full_options(options) if name in options and name not in cls.title_options]
        other = [f"{name} {options[name]}" for name in given if options[name] != defaults.get(name)]
        return ", ".join([cls.short_title(options), *other])

    @property
    def learns(self) -> bool:
        """Whether there are weights to train. ProtoNet on embeddings, for example, has none."""
        return any(True for _ in self.parameters())

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """What training minimises, a scalar."""
        raise NotImplementedError

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Condition on a support set; returns a function from queries [Q, ...] to their Prediction."""
        raise NotImplementedError

    def adapt(self, support: LabelledSet, n_way: int, seed: Seed = 0) -> "Predictor":
        """Condition on a support set and return a predictor.

        Parameters
        ----------
        support : LabelledSet
            Examples x [N, ...] with labels y [N] in 0..n_way-1, at least one per class.
        n_way : int
            The number of classes.
        seed : int or numpy Generator
            The same seed gives the same predictions.

        Returns
        -------
        Predictor
        """
        support = check_support(support, n_way)
        with evaluating(self):
            return Predictor(self, self.condition(support, n_way, as_generator(seed)), support.x.shape[1:])

    def losses(self, episodes: Sequence[Episode], rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        """The losses of one step's episodes, [B] in all, in as many pieces as suit memory best."""
        for k in averaged_statistics(self, len(episodes)):
            yield self.loss(episodes[k], rngs[k])[None]

    def predict_episodes(self, episodes: Sequence[Episode], seeds: Sequence[Seed]) -> list[Prediction]:
        """Adapt to each episode's support set and predict its queries."""
        return [
            self.adapt(episode.support, episode.n_way, seed)(episode.query.x)
            for episode, seed in zip(episodes, seeds, strict=True)
        ]

    def calibrate(self, episodes: Sequence[Episode]) -> None:
        """Choose by validation episodes what only prediction uses; most methods have nothing to choose."""

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """The optimiser's parameter groups; a method may give some parameters another rate."""
        return [{"params": list(self.parameters()), "lr": learning_rate}]

    def check_positive(self, **values: float | int) -> None:
        """Refuse rates and counts that are not above zero, with an InputError."""
        for name, value in values.items():
            if not value > 0:
                raise InputError(f"{self.title}: {name} must be above 0, not {value}")

    def check_choices(self, **values: str) -> None:
        """Refuse, with an InputError, a value that is not among the choices of this class's option of that name."""
        check_choices(self.title, type(self), **values)


class Predictor:
    """A method conditioned on a support set; call it with queries [Q, ...] to get their Prediction."""

    def __init__(self, method: FewShotMethod, query: QueryFunction, shape: torch.Size) -> None:
        self._method = method
        self._query = query
        self._shape = shape

    def __call__(self, x: Tensor) -> Prediction:
        """Predict every query, each as if it were the only one."""
        if x.shape[1:] != self._shape:
            raise InputError(f"queries must be [Q, {', '.join(map(str, self._shape))}], not {list(x.shape)}")
        if len(x) == 0:
            raise InputError("there is no query; at least one row is needed")
        if not bool(torch.isfinite(x).all()):
            raise InputError("the queries contain NaN or infinity; remove or replace those values")
        with evaluating(self._method):
            parts = [self._query(rows) for rows in torch.split(x, _ROWS)]
        return Prediction._make(None if part[0] is None else torch.cat(part) for part in zip(*parts, strict=True))


def check_support(support: LabelledSet, n_way: int) -> LabelledSet:
    """The support set with int64 labels; it must have examples of each of at least two classes."""
    x, y = support
    if n_way < 2:
        raise InputError(f"classification needs at least two classes; n_way is {n_way}")
    if len(x) == 0 or x.ndim < 2 or y.shape != x.shape[:1]:
        raise InputError(
            f"a support set is x [N, ...] with labels y [N], N > 0; the shapes are {list(x.shape)} and {list(y.shape)}"
        )
    if not bool(torch.isfinite(x).all()):
        raise InputError("the support set contains NaN or infinity; remove or replace those values")
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


def n_features(backbone: nn.Module, space: Space) -> int:
    """The number of features of a backbone that returns one vector per example; another one is an InputError."""
    shape = feature_shape(backbone, space)
    if len(shape) != 1:
        raise InputError(
            f"this method needs a backbone that returns vectors; this one returns {list(shape)} per example"
        )
    return shape[0]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside; afterwards every part is in the mode it was in before."""
    was_training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in was_training.items():
            part.training = training


def averaged_statistics(module: nn.Module, n: int) -> Iterator[int]:
    """Count 0..n-1; each count starts from the same running statistics, and their mean is kept at the end.

    So a step leaves the same statistics in whatever order its episodes run, and in however many processes.
    """
    # .data, because the backward pass of batch normalisation does not use them but would object to the change
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
