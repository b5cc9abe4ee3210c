"""Tiny-ImageNet: 200 classes of ImageNet at 64x64; those of tieredImageNet keep its class splits."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from polyshot.data.class_splits import Splits
from polyshot.data.dataset import DataSet
from polyshot.data.images import OnProgress, encode_square, map_images
from polyshot.data.packed import Array, concatenate_files
from polyshot.errors import DataError


def read(path: Path, size: int, progress: OnProgress) -> Mapping[str, Array]:
    """Read the unpacked tiny-imagenet-200 folder: words.txt and train/<wnid>/images/*.JPEG."""
    files = sorted(path.glob("train/n*/images/*.JPEG"))
    if not files or not (path / "words.txt").is_file():
        raise DataError(f"{path}: no words.txt or train/<wnid>/images/*.JPEG in it; give {DATASET.accepts}")
    wnids = sorted({file.parts[-3] for file in files})
    lines = (path / "words.txt").read_text(encoding="utf-8").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    blobs = map_images(lambda f: encode_square(f, size), files, [str(f) for f in files], str(path), progress)
    return {
        **concatenate_files(blobs),
        "labels": np.array([wnids.index(file.parts[-3]) for file in files], np.int16),
        "wnids": np.array(wnids),
        "class_names": np.array([words.get(wnid, wnid) for wnid in wnids]),
    }


DATASET = DataSet(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    summary="200 classes of ImageNet at 64x64",
    kind="natural",
    official="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    accepts="the unpacked tiny-imagenet-200 folder, with words.txt and train/ in it",
    licence="non-commercial research (ImageNet's terms)",
    citation="Le & Yang, Tiny ImageNet, Stanford CS231N, 2015; split: Ren et al., ICLR 2018",
    read=read,
    size=64,
    n_classes=200,
    splits=Splits.packaged("tiny-imagenet"),
)
