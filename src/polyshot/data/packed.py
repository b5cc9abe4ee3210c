"""Packed data: one `.npz` file per data set, read without unpickling and written atomically.

There are three forms. The field that holds the examples distinguishes them:

- `images`: uint8 [n, h, w] or [n, h, w, 3], with `labels` [n] and `class_names` [C];
- `jpeg`: uint8, all image files end to end (JPEG, or PNG where the source was pixels), with `offsets`
  int64 [n+1], `labels` [n] and `class_names` [C];
- `X`: float [n, d] embeddings, with `labels` [n]; `class_names` is optional, label -1 = outside all classes.

Optional fields: `wnids` [C], by which split files name the classes; `class_splits`, the class splits of a user's own
data as JSON text; `sha256`, the checksums of the other fields. Fields of other names are kept and not used.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from polyshot.data.images import decode_images
from polyshot.data.npz import read_arrays
from polyshot.errors import DataError
from polyshot.system.files import replacing

Array: TypeAlias = npt.NDArray[Any]

FIELDS = {
    "images": ("images", "labels", "class_names"),
    "jpeg": ("jpeg", "offsets", "labels", "class_names"),
    "X": ("X", "labels"),
}
SPLITS = "class_splits"
CHECKSUMS = "sha256"


@dataclass(frozen=True)
class Packed:
    """The arrays of one data set, checked; `source` is the file or folder that errors name."""

    source: Path
    arrays: Mapping[str, Array]

    def __post_init__(self) -> None:
        _check(self.source, self.arrays)

    @property
    def field(self) -> str:
        """The field that holds the examples: `images`, `jpeg` or `X`."""
        return next(field for field in FIELDS if field in self.arrays)

    @property
    def has_embeddings(self) -> bool:
        """Whether its examples are vectors, not images."""
        return self.field == "X"

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """[n], in -1..C-1."""
        return self.arrays["labels"].astype(np.int64)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """C names, in the order of the labels."""
        if "class_names" in self.arrays:
            return tuple(str(name) for name in self.arrays["class_names"])
        return tuple(str(label) for label in range(int(self.labels.max()) + 1))

    @cached_property
    def class_keys(self) -> tuple[str, ...]:
        """C keys by which split files name the classes: WordNet ids where there are some, else names."""
        return tuple(str(key) for key in self.arrays["wnids"]) if "wnids" in self.arrays else self.class_names

    @property
    def splits(self) -> str | None:
        """The class splits that it carries, as JSON."""
        return str(self.arrays[SPLITS]) if SPLITS in self.arrays else None

    def __len__(self) -> int:
        return len(self.labels)

    def examples(self, rows: npt.NDArray[np.int64]) -> Tensor:
        """Return those rows as one tensor: uint8 [n, c, h, w], or float32 [n, d]."""
        if self.field == "X":
            return torch.from_numpy(self.arrays["X"][rows].astype(np.float32))
        if self.field == "images":
            images = torch.from_numpy(self.arrays["images"][rows])
            return images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()
        data, offsets = self.arrays["jpeg"], self.arrays["offsets"]
        blobs = [data[offsets[row] : offsets[row + 1]].tobytes() for row in rows]
        names = [f"image {row} of class {self.class_names[self.labels[row]]!r}" for row in rows]
        return decode_images(blobs, names, str(self.source))


def read_packed(path: Path) -> Packed:
    """Read and check a packed file; nothing in it is ever unpickled."""
    return Packed(path, read_arrays(path))


def write_packed(path: Path, arrays: Mapping[str, Array]) -> Packed:
    """Write a packed file with the checksums of its arrays, completely or not at all."""
    arrays = {field: array for field, array in arrays.items() if field != CHECKSUMS}
    sums = np.array([f"{field}:{checksum(array)}" for field, array in sorted(arrays.items())])
    packed = Packed(path, {**arrays, CHECKSUMS: sums})
    # encoded images do not compress; pixels do
    save = np.savez if packed.field == "jpeg" else np.savez_compressed
    with replacing(path) as file:
        save(file, **packed.arrays)  # type: ignore[arg-type]
    return packed


def checksum(array: Array) -> str:
    """Return the SHA-256 of an array's type, shape and content."""
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    if array.dtype.kind == "U":
        digest.update("\0".join(array.ravel()).encode("utf-8", "surrogatepass"))
    else:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def own_checksums(packed: Packed) -> dict[str, str]:
    """Return the checksums that the file carries, by field; empty if it has none."""
    lines = packed.arrays.get(CHECKSUMS, np.array([])).ravel()
    return {field: value for field, _, value in (str(line).partition(":") for line in lines)}


def concatenate_files(blobs: list[bytes]) -> dict[str, Array]:
    """Return the fields `jpeg` and `offsets` for a list of image files."""
    return {
        "jpeg": np.frombuffer(b"".join(blobs), np.uint8),
        "offsets": np.cumsum([0, *map(len, blobs)], dtype=np.int64),
    }


def _check(source: Path, arrays: Mapping[str, Array]) -> None:
    found = [field for field in FIELDS if field in arrays]
    if len(found) != 1:
        raise DataError(
            f"{source}: not a packed data set: it must have exactly one of the fields images, jpeg and X, but it has "
            f"{', '.join(arrays) or 'no fields'}"
        )
    field = found[0]
    if missing := [name for name in FIELDS[field] if name not in arrays]:
        raise DataError(
            f"{source}: lacks the field {', '.join(missing)}; a set with {field!r} has {', '.join(FIELDS[field])}"
        )
    _check_examples(source, field, arrays[field])
    if field == "jpeg":
        _check_offsets(source, arrays["offsets"], len(arrays["jpeg"]))
    _check_labels(source, field, arrays)
    if SPLITS in arrays and (arrays[SPLITS].ndim or arrays[SPLITS].dtype.kind != "U"):
        raise DataError(f"{source}: {SPLITS} must be one text in JSON, not {_described(arrays[SPLITS])}")


def _check_labels(source: Path, field: str, arrays: Mapping[str, Array]) -> None:
    labels = arrays["labels"]
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise DataError(f"{source}: labels must be integers [n] with n > 0, not {_described(labels)}")
    n = len(arrays["offsets"]) - 1 if field == "jpeg" else len(arrays[field])
    if n != len(labels):
        raise DataError(f"{source}: {n} examples in {field!r} but {len(labels)} labels; give one label per example")
    first, last = int(labels.min()), int(labels.max())
    if "class_names" not in arrays and last >= n:
        raise DataError(
            f"{source}: labels up to {last} for {n} examples; number the classes from 0, or add the field class_names"
        )
    lowest = -1 if field == "X" else 0
    n_classes = last + 1
    for name in ("class_names", "wnids"):
        if name in arrays:
            if arrays[name].ndim != 1 or arrays[name].dtype.kind not in "Uiu":
                raise DataError(f"{source}: {name} must be texts [C], not {_described(arrays[name])}")
            n_classes = len(arrays["class_names"]) if "class_names" in arrays else n_classes
            if len(arrays[name]) != n_classes:
                raise DataError(f"{source}: {len(arrays[name])} {name} for {n_classes} classes; give one per class")
    if first < lowest or last >= n_classes or last < 0:
        raise DataError(
            f"{source}: labels run from {first} to {last}, and there are {n_classes} classes; labels must lie in "
            f"{lowest}..{n_classes - 1}, with at least one of 0 or more"
        )


def _check_examples(source: Path, field: str, data: Array) -> None:
    if field == "images" and not (
        data.dtype == np.uint8 and (data.ndim == 3 or (data.ndim == 4 and data.shape[3] == 3)) and 0 not in data.shape
    ):
        raise DataError(f"{source}: images must be uint8 [n, h, w] or [n, h, w, 3], not empty; got {_described(data)}")
    if field == "jpeg" and (data.dtype != np.uint8 or data.ndim != 1):
        raise DataError(f"{source}: jpeg must be uint8 [bytes], not {_described(data)}")
    if field == "X":
        if data.ndim != 2 or data.dtype.kind != "f" or 0 in data.shape:
            raise DataError(f"{source}: X must be floating-point [n, d], not empty; got {_described(data)}")
        most = np.finfo(np.float32).max
        if bad := np.flatnonzero(~(np.abs(data) <= most).all(axis=1)).tolist():
            raise DataError(
                f"{source}: X has NaN, infinity or values beyond {most:.1e} in {len(bad)} rows; "
                f"the first is row {bad[0]}"
            )


def _check_offsets(source: Path, offsets: Array, length: int) -> None:
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        raise DataError(f"{source}: offsets must be integers [n + 1] with n > 0, not {_described(offsets)}")
    if offsets[0] != 0 or offsets[-1] != length or (offsets[1:] <= offsets[:-1]).any():
        raise DataError(
            f"{source}: offsets must rise from 0 to {length}, the length of 'jpeg'; they run from "
            f"{offsets[0]} to {offsets[-1]}"
        )


def _described(array: Array) -> str:
    return f"{array.dtype} {list(array.shape)}"
