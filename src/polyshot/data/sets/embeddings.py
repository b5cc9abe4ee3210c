"""The user's own embeddings in an npz: X [n, d], labels [n], and optionally class_names [C]."""

from collections.abc import Mapping
from pathlib import Path

from polyshot.data.dataset import DataSet
from polyshot.data.images import OnProgress
from polyshot.data.npz import read_arrays
from polyshot.data.packed import Array


def read(path: Path, size: int, progress: OnProgress) -> Mapping[str, Array]:
    """Read the npz itself."""
    arrays = read_arrays(path)
    progress(1, 1)
    return arrays


DATASET = DataSet(
    name="embeddings",
    title="embeddings",
    summary="your own embeddings with labels: embeddings:PATH.npz",
    kind="embeddings",
    official="your own file",
    accepts="an .npz with X [n, d], labels [n] and optionally class_names [C]; label -1 = outside all classes",
    licence="your own",
    read=read,
    takes_path=True,
)
