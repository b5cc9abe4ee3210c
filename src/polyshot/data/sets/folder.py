"""The user's own images: a folder with one sub-folder per class; `splits.json` in it, if any, splits the classes."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from polyshot.data.dataset import DataSet
from polyshot.data.images import FORMATS, OnProgress, encode_square, map_images
from polyshot.data.packed import Array, concatenate_files
from polyshot.errors import DataError
from polyshot.system.text import printable


def read(path: Path, size: int, progress: OnProgress) -> Mapping[str, Array]:
    """Read every image of the class folders, centre-cropped to `size`."""
    files = class_files(path)
    every = [file for members in files.values() for file in members]
    blobs = map_images(lambda f: encode_square(f, size), every, [str(f) for f in every], str(path), progress)
    return {
        **concatenate_files(blobs),
        "labels": np.repeat(np.arange(len(files)), [len(members) for members in files.values()]),
        "class_names": np.array(list(files)),
    }


def class_files(path: Path) -> dict[str, list[Path]]:
    """Return the image files of each class, one sub-folder per class."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    found = (folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    folders = sorted(found, key=lambda folder: folder.name)
    if not folders:
        raise DataError(f"{path}: has no sub-folders; put the images of each class into a sub-folder with its name")
    # a folder's name may hold anything; from here on it can be printed, encoded and written
    files = {printable(folder.name): image_files(folder) for folder in folders}
    if len(files) < len(folders):
        raise DataError(f"{path}: two class folders have the same name when it is printed; rename one")
    if empty := [name for name in files if not files[name]]:
        raise DataError(
            f"{path}: no images in the class folders {', '.join(empty)}; add {', '.join(FORMATS)} files, or remove"
        )
    return files


def image_files(path: Path) -> list[Path]:
    """Return every file in the folder, and below it, that has the ending of an image format we read."""
    known = {ending for ending, format in Image.registered_extensions().items() if format in FORMATS}
    return sorted(f for f in path.rglob("*") if f.suffix.lower() in known and f.is_file())


DATASET = DataSet(
    name="folder",
    title="folder",
    summary="your own images, one sub-folder per class: folder:PATH",
    kind="natural",
    official="your own folder",
    accepts="a folder with one sub-folder per class, and optionally splits.json with the class splits",
    licence="your own",
    read=read,
    takes_path=True,
)
