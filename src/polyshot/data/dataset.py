"""What a data set is: its description in the registry, and its classes in memory."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from polyshot.data.class_splits import Splits
from polyshot.data.corruptions import corrupt
from polyshot.data.images import OnProgress
from polyshot.data.packed import Array, Packed
from polyshot.data.transforms import (
    NaturalTest,
    NaturalTrain,
    Transform,
    identity,
    normalize_crops,
    scale_characters,
)
from polyshot.errors import DataError, InputError
from polyshot.task import Kind

Reader: TypeAlias = Callable[[Path, int, OnProgress], Mapping[str, Array]]  # (path, size, progress) -> arrays
_CLASSIFIER_EPOCHS: dict[Kind, int] = {"characters": 5, "natural": 400, "embeddings": 5}  # Chen et al. (2019)
_CROPS_AT_ONCE = 1024


@dataclass(frozen=True)
class DataSet:
    """A data set: what it is, where it comes from, and how its examples are read.

    Give `read` for a data set that is imported from files, or `make` for one whose arrays a function returns.
    `DATASETS.register(dataset.name, dataset)` adds it to those of this package. The arrays are the fields of a packed
    file, described in `polyshot.data.packed`.

    Parameters
    ----------
    name : str
        Its name in the registry and on the command line: small letters, digits and hyphens.
    title : str
        Its name as papers write it, such as "mini-ImageNet".
    summary : str
        What it holds, in a few words.
    kind : {"characters", "natural", "embeddings"}
        What its examples are. It decides the transform and the training protocol.
    licence : str
        The terms of use.
    read : callable, optional
        Reads the official files: (path, size, progress) -> arrays. `progress(done, total)` reports to the user.
    make : callable, optional
        Returns the arrays without any file: () -> arrays.
    version : callable, optional
        With `make`: () -> a text that changes when the arrays do. They are then kept in the cache folder; without it
        `make` is called at every load.
    citation : str
        What to cite.
    official : str
        Where to get the official files.
    accepts : str
        What `polyshot data import NAME PATH` takes as PATH.
    takes_path : bool
        Whether it stands for the user's own data, which are named by a path, as in `folder:PATH`.
    size : int
        The side of stored images, in pixels.
    n_classes : int, optional
        How many classes it must have.
    editions : mapping of str to int
        The number of examples of each edition in use, the complete one last; empty if any number is right.
    splits : Splits
        Its class splits.
    ink : {0, 255}
        The grey level of the ink in the packed file of a character set.
    classifier_epochs : int, optional
        Epochs for methods that train a classifier on batches. By default 5 for characters and embeddings, and 400
        for natural images.
    """

    name: str
    title: str
    summary: str
    kind: Kind
    _: KW_ONLY
    licence: str = ""
    read: Reader | None = None
    make: Callable[[], Mapping[str, Array]] | None = None
    version: Callable[[], str] | None = None
    citation: str = ""
    official: str = ""
    accepts: str = ""
    takes_path: bool = False
    size: int = 84
    n_classes: int | None = None
    editions: Mapping[str, int] = field(default_factory=dict)
    splits: Splits = field(default_factory=Splits)
    ink: Literal[0, 255] = 255
    classifier_epochs: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", self.name):
            raise InputError(f"the name of a data set has small letters, digits and hyphens only, not {self.name!r}")
        if (self.read is None) == (self.make is None):
            raise InputError(f"the data set {self.name!r} needs either `read` or `make`, and not both")

    @property
    def file_name(self) -> str:
        """Its packed file in the data folder."""
        return f"{self.name.replace('-', '_')}.npz"

    @property
    def built_in(self) -> bool:
        """Whether it needs no files."""
        return self.make is not None

    def edition(self, n_examples: int) -> str | None:
        """Say which edition has that many examples; None if no edition has."""
        for name, size in self.editions.items():
            if size == n_examples:
                complete = max(self.editions.values())
                return f"all {size:,}" if size == complete else f"{name}, {size:,} of {complete:,} images"
        return None


@dataclass(frozen=True)
class ClassSet:
    """The examples of some classes, in memory and sorted by class.

    Attributes
    ----------
    name : str
        The data set and the split.
    x : Tensor
        uint8 [n, c, h, w] (characters: ink = 255) or float32 [n, d].
    y : Tensor
        int64 [n], the class of each example in 0..C-1.
    class_names : tuple of str
        C names.
    transform : callable
        Turns a batch of x into what a network takes.
    classifier_epochs : int
        Epochs for methods that train a classifier on batches of these classes.
    """

    name: str
    x: Tensor
    y: Int64[Tensor, "n"]
    class_names: tuple[str, ...]
    transform: Transform
    classifier_epochs: int = _CLASSIFIER_EPOCHS["natural"]

    @cached_property
    def class_sizes(self) -> npt.NDArray[np.int64]:
        """[C], examples per class."""
        return np.bincount(self.y.numpy(), minlength=len(self.class_names))

    @cached_property
    def class_starts(self) -> npt.NDArray[np.int64]:
        """[C], the first row of each class."""
        return np.concatenate([[0], np.cumsum(self.class_sizes)[:-1]])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all examples and labels: equal digests, settings and seeds give equal episodes."""
        digest = hashlib.sha256(f"{self.x.dtype} {list(self.x.shape)}".encode())
        for part in (self.x, self.y):
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()

    def embedded(self, features: Float[Tensor, "n ..."]) -> "ClassSet":
        """Return the same examples as features, one row each; a sampler of equal seed draws the same episodes."""
        return replace(self, name=f"{self.name}, embedded", x=features, transform=identity)

    def corrupted(self, corruption: str, severity: int, seed: int, crops: bool = False) -> "ClassSet":
        """Return the same set with every image corrupted once, so that support and query both are.

        `crops`: photographs are first resized and cropped to what the network sees, as in the paper's public code.
        """
        plain = self._cropped() if crops else self
        x = corrupt(plain.x, corruption, severity, seed)
        return replace(plain, name=f"{self.name}, {corruption} {severity}", x=x)

    def _cropped(self) -> "ClassSet":
        """The same test photographs at the network's size; other examples have it already."""
        if not isinstance(self.transform, NaturalTest):
            return self
        crops = [self.transform.crop(part).round_().to(torch.uint8) for part in torch.split(self.x, _CROPS_AT_ONCE)]
        return replace(self, x=torch.cat(crops), transform=normalize_crops)

    def rotated(self) -> "ClassSet":
        """Return four times the classes: each class turned by 0, 90, 180 and 270 degrees."""
        if self.x.ndim != 4:
            raise InputError(f"{self.name}: only images can be rotated, but x has shape {list(self.x.shape)}")
        n_classes = len(self.class_names)
        return replace(
            self,
            name=f"{self.name}, rotated",
            x=torch.cat([torch.rot90(self.x, turns, dims=(2, 3)) for turns in range(4)]),
            y=torch.cat([self.y + turns * n_classes for turns in range(4)]),
            class_names=tuple(f"{name}@{90 * turns}" for turns in range(4) for name in self.class_names),
        )


def select_classes(dataset: DataSet, packed: Packed, splits: Splits, split: str, size: int) -> ClassSet:
    """Decode the classes of one split; `size` is the side that natural images are transformed to."""
    classes = splits.classes(split, packed)
    if dataset.takes_path and split != "all" and (unknown := splits.unknown(packed)):
        raise DataError(
            f"{packed.source}: has no class {', '.join(unknown)}, but its splits name it ({splits.provenance})"
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
        classifier_epochs=dataset.classifier_epochs or _CLASSIFIER_EPOCHS[dataset.kind],
    )


def _transform(kind: Kind, split: str, size: int) -> Transform:
    if kind == "characters":
        return scale_characters
    if kind == "embeddings":
        return identity
    return NaturalTrain(size) if split == "train" else NaturalTest(size)
