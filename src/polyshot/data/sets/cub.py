"""CUB-200-2011 (Wah et al., 2011): 200 species of birds, 11,788 photographs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from polyshot.data.class_splits import Splits
from polyshot.data.dataset import DataSet
from polyshot.data.images import OnProgress, encode_square, map_images
from polyshot.data.packed import Array, concatenate_files
from polyshot.errors import DataError

_LISTS = ("images.txt", "classes.txt", "image_class_labels.txt")


def read(path: Path, size: int, progress: OnProgress) -> Mapping[str, Array]:
    """Read the unpacked CUB_200_2011 folder, or the folder that holds it."""
    folder = path if (path / "images.txt").is_file() else path / "CUB_200_2011"
    if missing := [name for name in _LISTS if not (folder / name).is_file()]:
        raise DataError(f"{path}: no {', '.join(missing)} in it; give {DATASET.accepts}")
    images, classes, labels = (_read_list(folder / name) for name in _LISTS)
    if images.keys() != labels.keys() or not set(labels.values()) <= set(classes):
        raise DataError(f"{folder}: images.txt, classes.txt and image_class_labels.txt do not fit together")
    ids = sorted(images, key=int)
    class_ids = sorted(classes, key=int)
    files = [folder / "images" / images[i] for i in ids]
    blobs = map_images(lambda f: encode_square(f, size), files, [str(f) for f in files], str(folder), progress)
    return {
        **concatenate_files(blobs),
        "labels": np.array([class_ids.index(labels[i]) for i in ids], np.int16),
        "image_id": np.array(ids, np.int32),
        "class_names": np.array([classes[i] for i in class_ids]),
    }


def _read_list(path: Path) -> dict[str, str]:
    """Read lines of `number value` as a dictionary."""
    rows = [line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not all(len(row) == 2 and row[0].isdigit() for row in rows):
        raise DataError(f"{path}: every line must be a number and a value, as published")
    return {number: value.strip() for number, value in rows}


DATASET = DataSet(
    name="cub",
    title="CUB",
    summary="photographs of 200 species of birds",
    kind="natural",
    official="https://data.caltech.edu/records/65de6-vp158 (CUB_200_2011.tgz)",
    accepts="the unpacked CUB_200_2011 folder, with images.txt, classes.txt and images/ in it",
    licence="non-commercial research",
    citation="Wah et al., The Caltech-UCSD Birds-200-2011 dataset, Caltech, 2011",
    read=read,
    n_classes=200,
    editions={"all": 11_788},
    classifier_epochs=200,
    splits=Splits.packaged("cub"),
)
