"""What a data set is: a description in the registry, class splits in a file, classes in memory."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from polyshot.data.corruptions import corrupt
from polyshot.data.images import Progress
from polyshot.data.packed import Array, Packed
from polyshot.data.transforms import NaturalTest, NaturalTrain, Transform, identity, scale_characters
from polyshot.errors import DataError, InputError
from polyshot.task import Kind

_BY_INDEX = {"train": (2, 0), "validation": (4, 1), "test": (4, 3)}  # split: (period, remainder)
Reader: TypeAlias = Callable[[Path, int, Progress], Mapping[str, Array]]


@dataclass(frozen=True)
class Splits:
    """Class splits by name; an entry is a class key, or the group before the "/" of several keys.

    With no members, as for a user's own data without a split file, classes are split by their number, by CUB's rule.
    """

    members: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    provenance: str = "by class number i: train i%2=0, validation i%4=1, test i%4=3"

    @classmethod
    def read(cls, path: Path) -> "Splits":
        """A split file: {"provenance": ..., "splits": {"train": [...], ...}}, or the inner part alone."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            members = content.get("splits", content)
            well_formed = all(isinstance(e, str) for entries in members.values() for e in entries)
        except (OSError, ValueError, AttributeError, TypeError):
            well_formed = False
        if not well_formed:
            raise DataError(
                f'{path}: not a split file; it must be JSON like {{"train": ["class", ...], "test": [...]}}'
            )
        return cls(members, content.get("counts", {}), content.get("provenance", str(path)))

    @classmethod
    def packaged(cls, name: str) -> "Splits":
        """The split file of that name in this package."""
        return cls.read(Path(str(files("polyshot.data").joinpath("splits", f"{name}.json"))))

    def classes(self, split: str, packed: Packed) -> npt.NDArray[np.int64]:
        """Label numbers of the classes in `split`; the split `all` is every class."""
        n_classes = len(packed.class_keys)
        if split == "all":
            return np.arange(n_classes)
        if not self.members and split in _BY_INDEX:
            period, remainder = _BY_INDEX[split]
            return np.arange(remainder, n_classes, period)
        if split not in self.members:
            raise DataError(
                f"{packed.source}: no class split {split!r}; there is {', '.join(self.names)}. A "
                "folder has its splits in splits.json in it, a file NAME.npz in NAME_splits.json beside it"
            )
        found = self._listed(split, packed)
        if not found:
            raise DataError(f"{packed.source}: holds none of the classes of split {split!r} ({self.provenance})")
        others = [name for name in _BY_INDEX if name in self.members and name != split]
        for other in others if split in _BY_INDEX else []:
            listed = self._listed(other, packed)
            if shared := [packed.class_keys[i] for i in found if i in listed]:
                raise DataError(
                    f"{packed.source}: {', '.join(shared)}: in split {split!r} and also in split {other!r} "
                    f"({self.provenance}); a class may be in one of {', '.join(_BY_INDEX)} only"
                )
        return np.array(found)

    def _listed(self, split: str, packed: Packed) -> list[int]:
        wanted = set(self.members[split])
        return [i for i, key in enumerate(packed.class_keys) if {key, key.split("/")[0]} & wanted]

    @property
    def names(self) -> list[str]:
        """Every split that can be asked for."""
        return [*(self.members or _BY_INDEX), "all"]

    def unknown(self, packed: Packed) -> list[str]:
        """Entries that name no class of the data."""
        known = set(packed.class_keys) | {key.split("/")[0] for key in packed.class_keys}
        return sorted({entry for entries in self.members.values() for entry in entries} - known)


@dataclass(frozen=True)
class DataSet:
    """A data set of the registry: what it is, where it comes from, and how its official files are read."""

    name: str
    summary: str
    kind: Kind
    official: str
    accepts: str
    licence: str
    read: Reader
    size: int = 84
    n_classes: int | None = None
    n_examples: int | None = None
    splits: Splits = Splits()
    ink: Literal[0, 255] = 255  # grey level of the ink in the packed file of a character set

    @property
    def file_name(self) -> str:
        """Its packed file in the data folder."""
        return f"{self.name.replace('-', '_')}.npz"


@dataclass(frozen=True)
class ClassSet:
    """The examples of some classes, in memory and sorted by class.

    x: uint8 [n, c, h, w] (characters: ink = 255) or float32 [n, d]; y: int64 [n] in 0..C-1.
    `transform` turns a batch of x into what a network takes.
    """

    name: str
    x: Tensor
    y: Int64[Tensor, "n"]
    class_names: tuple[str, ...]
    transform: Transform

    @cached_property
    def class_sizes(self) -> npt.NDArray[np.int64]:
        """[C], examples a class."""
        return np.bincount(self.y.numpy(), minlength=len(self.class_names))

    @cached_property
    def class_starts(self) -> npt.NDArray[np.int64]:
        """[C], the first row of each class."""
        return np.concatenate([[0], np.cumsum(self.class_sizes)[:-1]])

    @cached_property
    def digest(self) -> str:
        """Of all examples and labels: equal digests, settings and seeds are equal episodes."""
        digest = hashlib.sha256(f"{self.x.dtype} {list(self.x.shape)}".encode())
        for part in (self.x, self.y):
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()

    def embedded(self, features: Float[Tensor, "n ..."]) -> "ClassSet":
        """The same examples as features, one row each: a sampler of equal seed draws the same episodes."""
        return replace(self, name=f"{self.name}, embedded", x=features, transform=identity)

    def corrupted(self, corruption: str, severity: int, seed: int) -> "ClassSet":
        """The same set with every image corrupted once, so that support and query both are."""
        return replace(
            self,
            name=f"{self.name}, {corruption} {severity}",
            x=corrupt(self.x, corruption, severity, seed),
        )

    def rotated(self) -> "ClassSet":
        """Four times the classes: each class turned by 0, 90, 180 and 270 degrees."""
        if self.x.ndim != 4:
            raise InputError(f"{self.name}: only images can be rotated, and x has shape {list(self.x.shape)}")
        n_classes = len(self.class_names)
        return replace(
            self,
            name=f"{self.name}, rotated",
            x=torch.cat([torch.rot90(self.x, turns, dims=(2, 3)) for turns in range(4)]),
            y=torch.cat([self.y + turns * n_classes for turns in range(4)]),
            class_names=tuple(f"{name}@{90 * turns}" for turns in range(4) for name in self.class_names),
        )


def select_classes(dataset: DataSet, packed: Packed, splits: Splits, split: str, size: int) -> ClassSet:
    """The classes of one split, decoded; `size` is the side that natural images are transformed to."""
    classes = splits.classes(split, packed)
    if dataset.official == "yours" and split != "all" and (unknown := splits.unknown(packed)):
        raise DataError(
            f"{packed.source}: has no class {', '.join(unknown)}, which its split file names ({splits.provenance})"
        )
    new_label = np.full(len(packed.class_names) + 1, -1)  # the last entry is for label -1
    new_label[classes] = np.arange(len(classes))
    labels = new_label[packed.labels]
    rows = np.flatnonzero(labels >= 0)
    rows = rows[np.argsort(labels[rows], kind="stable")]
    x = packed.examples(rows)
    if dataset.kind == "characters" and dataset.ink == 0:
        x = 255 - x
    return ClassSet(
        name=f"{dataset.name} {split}",
        x=x,
        y=torch.from_numpy(labels[rows]),
        class_names=tuple(packed.class_names[i] for i in classes),
        transform=_transform(dataset.kind, split, size),
    )


def _transform(kind: Kind, split: str, size: int) -> Transform:
    if kind == "characters":
        return scale_characters
    if kind == "embeddings":
        return identity
    return NaturalTrain(size) if split == "train" else NaturalTest(size)
