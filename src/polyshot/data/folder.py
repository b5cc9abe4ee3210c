"""Any folder with one sub-folder a class; `splits.json` in it, where there is one, splits the classes."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from polyshot.data.dataset import DataSet
from polyshot.data.images import Progress, encode_square, map_images
from polyshot.data.packed import Array, concatenate_files
from polyshot.errors import DataError


def read(path: Path, size: int, progress: Progress) -> Mapping[str, Array]:
    """Every file of a type that Pillow reads, centre-cropped to `size`."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    known = {ending for ending, format in Image.registered_extensions().items() if format in Image.OPEN}
    classes = sorted(d.name for d in path.iterdir() if d.is_dir() and not d.name.startswith("."))
    files = {name: sorted(f for f in (path / name).rglob("*") if f.suffix.lower() in known) for name in classes}
    if not classes:
        raise DataError(f"{path}: no sub-folders; put the images of each class into a sub-folder of its name")
    if empty := [name for name in classes if not files[name]]:
        raise DataError(f"{path}: no images in the class folders {', '.join(empty)}; fill or remove them")
    every = [file for name in classes for file in files[name]]
    blobs = map_images(lambda f: encode_square(f, size), every, [str(f) for f in every], str(path), progress)
    return {
        **concatenate_files(blobs),
        "labels": np.repeat(np.arange(len(classes)), [len(files[name]) for name in classes]),
        "class_names": np.array(classes),
    }


DATASET = DataSet(
    name="folder",
    summary="your own images, one sub-folder a class: folder:PATH",
    kind="natural",
    official="yours",
    accepts="a folder with one sub-folder a class, and splits.json if its classes are to be split",
    licence="yours",
    read=read,
)
