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
    files = class_files(path)
    every = [file for members in files.values() for file in members]
    blobs = map_images(lambda f: encode_square(f, size), every, [str(f) for f in every], str(path), progress)
    return {
        **concatenate_files(blobs),
        "labels": np.repeat(np.arange(len(files)), [len(members) for members in files.values()]),
        "class_names": np.array(list(files)),
    }


def class_files(path: Path) -> dict[str, list[Path]]:
    """The image files of each class, one sub-folder a class."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    classes = sorted(d.name for d in path.iterdir() if d.is_dir() and not d.name.startswith("."))
    if not classes:
        raise DataError(f"{path}: no sub-folders; put the images of each class into a sub-folder of its name")
    files = {name: image_files(path / name) for name in classes}
    if empty := [name for name in classes if not files[name]]:
        raise DataError(f"{path}: no images in the class folders {', '.join(empty)}; fill or remove them")
    return files


def image_files(path: Path) -> list[Path]:
    """Every file in the folder and below it of a type that Pillow reads."""
    known = {ending for ending, format in Image.registered_extensions().items() if format in Image.OPEN}
    return sorted(f for f in path.rglob("*") if f.suffix.lower() in known)


DATASET = DataSet(
    name="folder",
    summary="your own images, one sub-folder a class: folder:PATH",
    kind="natural",
    official="yours",
    accepts="a folder with one sub-folder a class, and splits.json if its classes are to be split",
    licence="yours",
    read=read,
)
