"""Scenarios: which data set's classes to train on, to choose by, and to be tested on."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from polyshot.data.dataset import ClassSet
from polyshot.data.registry import load
from polyshot.errors import InputError
from polyshot.system.registry import Registry


class Source(NamedTuple):
    """A split of a data set."""

    dataset: str
    split: str


def _within(dataset: str) -> tuple[Source, Source, Source]:
    return Source(dataset, "train"), Source(dataset, "validation"), Source(dataset, "test")


def _across(train: Source, dataset: str) -> tuple[Source, Source, Source]:
    return train, Source(dataset, "validation"), Source(dataset, "test")


@dataclass(frozen=True)
class Scenario:
    """Train, validation and test classes, each loaded when first asked for."""

    name: str
    sources: tuple[Source, Source, Source]
    root: Path | str | None = None
    rotations: bool = False

    @property
    def crosses(self) -> bool:
        """Whether the test classes are of another data set than the training classes."""
        return self.sources[0].dataset != self.sources[2].dataset

    @property
    def title(self) -> str:
        """Its name as papers write it."""
        names = {
            "cub": "CUB", "mini-imagenet": "mini-ImageNet", "omniglot": "Omniglot", "emnist": "EMNIST",
            "chars74k": "Chars74K", "tiny-imagenet": "Tiny-ImageNet", "glyphs": "glyphs",
        }  # fmt: skip
        train, test = (names.get(source.dataset, source.dataset) for source in self.sources[::2])
        return f"{train}→{test}" if self.crosses else test

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


_SOURCES = {
    "cub": _within("cub"),
    "mini-imagenet": _within("mini-imagenet"),
    "mini-imagenet-to-cub": _across(Source("mini-imagenet", "train"), "cub"),
    "omniglot-to-emnist": _across(Source("omniglot", "all-but-latin"), "emnist"),
    "omniglot-to-chars74k": _across(Source("omniglot", "all-but-latin"), "chars74k"),
    "tiny-imagenet": _within("tiny-imagenet"),
    "tiny-imagenet-to-cub": _across(Source("tiny-imagenet", "train"), "cub"),
    "glyphs": _within("glyphs"),
}
SCENARIOS = Registry("scenario", {name: Scenario(name, sources) for name, sources in _SOURCES.items()})


def load_scenario(name: str, root: Path | str | None = None, rotations: bool = False) -> Scenario:
    """A scenario by name, or `folder:PATH` and `embeddings:PATH` with splits of their own.

    `rotations` makes four training classes of each, turned by 90 degrees (characters).
    """
    if name in SCENARIOS:
        return Scenario(name, _SOURCES[name], root, rotations)
    if name.partition(":")[0] in {"folder", "embeddings"}:
        return Scenario(name, _within(name), root, rotations)
    raise InputError(f"no scenario {name!r}; there is {', '.join(SCENARIOS)}, folder:PATH and embeddings:PATH")
