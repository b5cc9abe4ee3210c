"""Packed data: one `.npz` a data set, read without unpickling and written atomically.

Three kinds, told apart by the field that holds the examples:

- `images`: uint8 [n, h, w] or [n, h, w, 3], with `labels` [n] and `class_names` [C];
- `jpeg`: uint8, all image files end to end (JPEG, or PNG where the source was pixels), with `offsets`
  int64 [n+1], `labels` [n] and `class_names` [C];
- `X`: float [n, d] embeddings, with `labels` [n]; `class_names` is optional, label -1 = in no class.
"""

import contextlib
import hashlib
import os
import tempfile
import zipfile
import zlib
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
from polyshot.errors import DataError

Array: TypeAlias = npt.NDArray[Any]

FIELDS = {
    "images": ("images", "labels", "class_names"),
    "jpeg": ("jpeg", "offsets", "labels", "class_names"),
    "X": ("X", "labels"),
}
# what the standard library and numpy raise on a damaged zip, gzip or npz file
UNREADABLE = (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
_CHECKSUMS = "sha256"  # the field in which a file carries the checksums of its own arrays


@dataclass(frozen=True)
class Packed:
    """The arrays of one data set, checked; `source` is the file or folder that errors name."""

    source: Path
    arrays: Mapping[str, Array]

    def __post_init__(self) -> None:
        _check(self.source, self.arrays)

    @property
    def kind(self) -> str:
        """`images`, `jpeg` or `X`: the field that holds the examples."""
        return next(kind for kind in FIELDS if kind in self.arrays)

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
        """C keys by which a split file names the classes: WordNet ids where there are some, else names."""
        return tuple(str(key) for key in self.arrays["wnids"]) if "wnids" in self.arrays else self.class_names

    def __len__(self) -> int:
        return len(self.labels)

    def examples(self, rows: npt.NDArray[np.int64]) -> Tensor:
        """Those rows as one tensor: uint8 [n, c, h, w], or float32 [n, d]."""
        if self.kind == "X":
            return torch.from_numpy(self.arrays["X"][rows].astype(np.float32))
        if self.kind == "images":
            images = torch.from_numpy(self.arrays["images"][rows])
            return images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()
        data, offsets = self.arrays["jpeg"], self.arrays["offsets"]
        blobs = [data[offsets[row] : offsets[row + 1]].tobytes() for row in rows]
        names = [f"image {row} of class {self.class_names[self.labels[row]]!r}" for row in rows]
        return decode_images(blobs, names, str(self.source))


def _check(source: Path, arrays: Mapping[str, Array]) -> None:
    kinds = [kind for kind in FIELDS if kind in arrays]
    if len(kinds) != 1:
        raise DataError(
            f"{source}: not a packed data set: it must hold one of the fields images, jpeg or X, and holds "
            f"{', '.join(arrays) or 'nothing'}"
        )
    kind = kinds[0]
    if missing := [field for field in FIELDS[kind] if field not in arrays]:
        raise DataError(
            f"{source}: lacks the field {', '.join(missing)}; a packed set with {kind!r} has {', '.join(FIELDS[kind])}"
        )
    labels = arrays["labels"]
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or not len(labels):
        raise DataError(f"{source}: labels must be a non-empty row of integers, not {labels.dtype} {labels.shape}")
    n = len(arrays["offsets"]) - 1 if kind == "jpeg" else len(arrays[kind])
    if n != len(labels):
        raise DataError(f"{source}: {n} examples in {kind!r} but {len(labels)} labels; one label an example")
    lowest = -1 if kind == "X" else 0
    n_classes = len(arrays["class_names"]) if "class_names" in arrays else int(labels.max()) + 1
    if labels.min() < lowest or labels.max() >= n_classes:
        raise DataError(
            f"{source}: labels run from {labels.min()} to {labels.max()}, and there are {n_classes} classes; "
            f"labels must lie in {lowest}..{n_classes - 1}"
        )
    _check_examples(source, kind, arrays)


def _check_examples(source: Path, kind: str, arrays: Mapping[str, Array]) -> None:
    data = arrays[kind]
    if kind == "images" and not (
        data.dtype == np.uint8 and (data.ndim == 3 or (data.ndim == 4 and data.shape[3] == 3))
    ):
        raise DataError(
            f"{source}: images must be uint8 [n, h, w] or [n, h, w, 3], not {data.dtype} {list(data.shape)}"
        )
    if kind == "jpeg":
        offsets = arrays["offsets"]
        if offsets[0] != 0 or offsets[-1] != len(data) or (np.diff(offsets) <= 0).any():
            raise DataError(
                f"{source}: offsets must rise from 0 to {len(data)}, the length of 'jpeg'; they run from "
                f"{offsets[0]} to {offsets[-1]}"
            )
    if kind == "X":
        if data.ndim != 2 or not np.issubdtype(data.dtype, np.floating):
            raise DataError(f"{source}: X must be floating [n, d], not {data.dtype} {list(data.shape)}")
        if bad := np.flatnonzero(~np.isfinite(data).all(axis=1)).tolist():
            raise DataError(f"{source}: X holds NaN or infinity in {len(bad)} rows, the first is row {bad[0]}")


def read_packed(path: Path) -> Packed:
    """Read and check a packed file; nothing in it is ever unpickled."""
    return Packed(path, read_arrays(path))


def read_arrays(path: Path) -> dict[str, Array]:
    """The plain arrays in an npz."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with path.open("rb") as raw:
            content = np.load(raw, allow_pickle=False)
            return {field: content[field] for field in getattr(content, "files", ())}
    except UNREADABLE as error:
        raise DataError(f"{path}: not a readable .npz of plain arrays ({error}); fetch or import it again") from error


def write_packed(path: Path, arrays: Mapping[str, Array]) -> Packed:
    """Write a packed file with the checksums of its arrays: whole, or not at all."""
    sums = np.array([f"{field}:{checksum(array)}" for field, array in sorted(arrays.items())])
    packed = Packed(path, {**arrays, _CHECKSUMS: sums})
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            # encoded images do not compress; pixels do
            save = np.savez if packed.kind == "jpeg" else np.savez_compressed
            save(file, **packed.arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return packed


def checksum(array: Array) -> str:
    """SHA-256 of an array's type, shape and content."""
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data if array.dtype.kind != "U" else "\0".join(array).encode())
    return digest.hexdigest()


def own_checksums(packed: Packed) -> dict[str, str]:
    """The checksums that the file carries, by field; empty where it has none."""
    return dict(str(line).split(":") for line in packed.arrays.get(_CHECKSUMS, np.array([])))


def concatenate_files(blobs: list[bytes]) -> dict[str, Array]:
    """The fields `jpeg` and `offsets` for a list of image files."""
    return {
        "jpeg": np.frombuffer(b"".join(blobs), np.uint8),
        "offsets": np.cumsum([0, *map(len, blobs)], dtype=np.int64),
    }
