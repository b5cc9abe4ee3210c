"""Scenarios: which classes of which data sets to train on, to validate on, and to test on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from polyshot.data.dataset import ClassSet
from polyshot.data.loading import load
from polyshot.data.registry import DATASETS, find_dataset
from polyshot.errors import InputError
from polyshot.system.registry import Registry
from polyshot.task import Kind


class Source(NamedTuple):
    """A split of a data set."""

    dataset: str
    split: str


@dataclass(frozen=True)
class Scenario:
    """Train, validation and test classes, each loaded when it is first asked for.

    Parameters
    ----------
    name : str
        Its name in the registry and on the command line.
    sources : tuple of three Source
        The data set and split of the train, validation and test classes.
    root : path, optional
        The folder of packed files; else $POLYSHOT_DATA, else the user's cache folder.
    rotations : bool
        Whether to make four training classes of each, turned by 0, 90, 180 and 270 degrees (characters).
    """

    name: str
    sources: tuple[Source, Source, Source]
    root: Path | str | None = None
    rotations: bool = False

    @classmethod
    def within(cls, dataset: str) -> "Scenario":
        """Train, validate and test within one data set."""
        return cls.across(dataset, Source(dataset, "train"), dataset)

    @classmethod
    def across(cls, name: str, train: Source, dataset: str) -> "Scenario":
        """Train on one data set, validate and test on another."""
        return cls(name, (train, Source(dataset, "validation"), Source(dataset, "test")))

    @property
    def crosses(self) -> bool:
        """Whether the test classes are of another data set than the training classes."""
        return self.sources[0].dataset != self.sources[2].dataset

    @property
    def kind(self) -> Kind:
        """What its test examples are."""
        return find_dataset(self.sources[2].dataset).kind

    @property
    def title(self) -> str:
        """Its name as papers write it, such as "mini-ImageNet→CUB"; a user's own data keep their path."""
        if ":" in self.name:
            return self.name
        train, test = (find_dataset(source.dataset).title for source in self.sources[::2])
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


class _Scenarios(Registry[Scenario]):
    """The registered scenarios, and every data set with train, validation and test classes as one of its own."""

    def find(self, name: str) -> Scenario:
        """Return the scenario of that name; an unknown name is an InputError that lists the others."""
        if name not in self:
            own = [f"{dataset.name}:PATH" for dataset in DATASETS.values() if dataset.takes_path]
            raise InputError(f"unknown scenario {name!r}; choose from {', '.join([*self, *own])}")
        return self[name]

    def __getitem__(self, name: str) -> Scenario:
        if not super().__contains__(name) and _is_dataset(name):
            return Scenario.within(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and _is_dataset(name))

    def __iter__(self) -> Iterator[str]:
        within = (name for name, dataset in DATASETS.items() if not dataset.takes_path and dataset.splits.complete)
        return iter(dict.fromkeys([*super().__iter__(), *within]))


def _is_dataset(name: str) -> bool:
    plain, _, path = name.partition(":")
    return plain in DATASETS and DATASETS[plain].splits.complete and bool(path) == DATASETS[plain].takes_path


_OMNIGLOT = Source("omniglot", "all-but-latin")
SCENARIOS: Registry[Scenario] = _Scenarios(
    "scenario",
    {
        scenario.name: scenario
        for scenario in (
            Scenario.across("mini-imagenet-to-cub", Source("mini-imagenet", "train"), "cub"),
            Scenario.across("omniglot-to-emnist", _OMNIGLOT, "emnist"),
            Scenario.across("omniglot-to-chars74k", _OMNIGLOT, "chars74k"),
            Scenario.across("tiny-imagenet-to-cub", Source("tiny-imagenet", "train"), "cub"),
        )
    },
    "polyshot.scenarios",
)


def load_scenario(name: str, root: Path | str | None = None, rotations: bool = False) -> Scenario:
    """Return a scenario, whose classes are loaded when they are first asked for.

    Parameters
    ----------
    name : str
        A registered scenario, a data set with train, validation and test classes, `folder:PATH` or `embeddings:PATH`.
    root : path, optional
        The folder of packed files; else $POLYSHOT_DATA, else the user's cache folder.
    rotations : bool
        Whether to make four training classes of each, turned by 0, 90, 180 and 270 degrees (characters).

    Examples
    --------
    >>> from polyshot.data import load_scenario
    >>> load_scenario("omniglot-to-emnist").title
    'Omniglot→EMNIST'
    """
    return replace(SCENARIOS.find(name), root=root, rotations=rotations)
