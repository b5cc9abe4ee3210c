"""Scenarios: which data set's classes to train on, to choose by, and to be tested on."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from polyshot.data.dataset import ClassSet
from polyshot.data.registry import load
from polyshot.errors import InputError


class Source(NamedTuple):
    """A split of a data set."""

    dataset: str
    split: str


def _within(dataset: str) -> tuple[Source, Source, Source]:
    return Source(dataset, "train"), Source(dataset, "validation"), Source(dataset, "test")


def _across(train: Source, dataset: str) -> tuple[Source, Source, Source]:
    return train, Source(dataset, "validation"), Source(dataset, "test")


SCENARIOS = {
    "cub": _within("cub"),
    "mini-imagenet": _within("mini-imagenet"),
    "mini-imagenet-to-cub": _across(Source("mini-imagenet", "train"), "cub"),
    "omniglot-to-emnist": _across(Source("omniglot", "all-but-latin"), "emnist"),
    "omniglot-to-chars74k": _across(Source("omniglot", "all-but-latin"), "chars74k"),
    "tiny-imagenet": _within("tiny-imagenet"),
    "tiny-imagenet-to-cub": _across(Source("tiny-imagenet", "train"), "cub"),
    "glyphs": _within("glyphs"),
}


@dataclass(frozen=True)
class Scenario:
    """Train, validation and test classes, each loaded when first asked for."""

    name: str
    sources: tuple[Source, Source, Source]
    root: Path | str | None = None
    rotations: bool = False

    @cached_property
    def train(self) -> ClassSet:
        """The classes to learn from, with their augmentation."""
        classes = load(*self.sources[0], root=self.root)
        return classes.rotated() if self.rotations else classes

    @cached_property
    def validation(self) -> ClassSet:
        """The classes to choose a model by."""
        return load(*self.sources[1], root=self.root)

    @cached_property
    def test(self) -> ClassSet:
        """The classes to report."""
        return load(*self.sources[2], root=self.root)


def load_scenario(name: str, root: Path | str | None = None, rotations: bool = False) -> Scenario:
    """A scenario by name, or `folder:PATH` and `embeddings:PATH` with splits of their own.

    `rotations` makes four training classes of each, turned by 90 degrees (characters).
    """
    if name in SCENARIOS:
        return Scenario(name, SCENARIOS[name], root, rotations)
    if name.partition(":")[0] in {"folder", "embeddings"}:
        return Scenario(name, _within(name), root, rotations)
    raise InputError(f"no scenario {name!r}; there is {', '.join(SCENARIOS)}, folder:PATH and embeddings:PATH")
