"""Embeddings with labels in an npz: X [n, d], labels [n], and class_names [C] if you have them."""

from collections.abc import Mapping
from pathlib import Path

from polyshot.data.dataset import DataSet
from polyshot.data.images import Progress
from polyshot.data.packed import Array, read_packed
from polyshot.errors import DataError


def read(path: Path, size: int, progress: Progress) -> Mapping[str, Array]:
    """The npz itself, checked."""
    packed = read_packed(path)
    if packed.kind != "X":
        raise DataError(f"{path}: holds images, not embeddings; it must have the fields X and labels")
    progress(1, 1)
    return {field: array for field, array in packed.arrays.items() if field != "sha256"}


DATASET = DataSet(
    name="embeddings",
    summary="your own embeddings with labels: embeddings:PATH.npz",
    kind="embeddings",
    official="yours",
    accepts="an .npz with X [n, d], labels [n] and, if you like, class_names [C]; label -1 = in no class",
    licence="yours",
    read=read,
)
