"""Omniglot (Lake et al., 2011): 1,623 handwritten characters of 50 alphabets, 20 drawings each."""

import re
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from polyshot.data.class_splits import Splits
from polyshot.data.dataset import DataSet
from polyshot.data.images import OnProgress, map_images, open_image
from polyshot.data.npz import UNREADABLE
from polyshot.data.packed import Array
from polyshot.errors import DataError

PARTS = ("background", "evaluation")
_MOST_BYTES = 2**20  # of one drawing: they have about 300
_MEMBER = re.compile(r"images_(?:background|evaluation)/([^/]+/character\d+)/(\d+)_(\d+)\.png")


def read(resampling: Image.Resampling, path: Path, size: int, progress: OnProgress) -> Mapping[str, Array]:
    """Read the folder with the two zips as published; drawings are in the order of their class and drawer numbers."""
    drawings: list[tuple[int, int, int, str, bytes]] = []  # class number, drawer, part, class name, file
    for part, name in enumerate(PARTS):
        archive = path / f"images_{name}.zip"
        try:
            with zipfile.ZipFile(archive) as file:
                members = [
                    (m, file.open(m.string).read(_MOST_BYTES)) for m in map(_MEMBER.fullmatch, file.namelist()) if m
                ]
        except UNREADABLE as error:
            raise DataError(
                f"{archive}: missing, or not a complete zip ({error}); {path} must be the folder with "
                "images_background.zip and images_evaluation.zip as published"
            ) from error
        if not members:
            raise DataError(
                f"{archive}: a different archive: it has no file like images_{name}/Greek/character01/0394_01.png"
            )
        drawings += [(int(m[2]), int(m[3]), part, m[1], blob) for m, blob in members]
    drawings.sort(key=lambda drawing: drawing[:2])

    def shrink(blob: bytes) -> np.ndarray:
        return np.asarray(open_image(blob, "L").resize((size, size), resampling))

    names = [f"drawing {drawer} of {name!r}" for _, drawer, _, name, _ in drawings]
    images = np.stack(map_images(shrink, [d[4] for d in drawings], names, str(path), progress))
    classes = sorted({(number, name, part) for number, _, part, name, _ in drawings})
    label = {number: i for i, (number, _, _) in enumerate(classes)}
    alphabets = [name.split("/")[0] for _, name, _ in classes]
    alphabet_names, class_alphabet = np.unique(alphabets, return_inverse=True)
    return {
        # black on white as published where binary; white on black where anti-aliased
        "images": images if resampling is Image.Resampling.NEAREST else 255 - images,
        "labels": np.array([label[d[0]] for d in drawings], np.int16),
        "drawer": np.array([d[1] for d in drawings], np.int8),
        "class_names": np.array([name for _, name, _ in classes]),
        "class_id": np.array([number for number, _, _ in classes], np.int16),
        "class_alphabet": class_alphabet.astype(np.int8),
        "alphabet_names": alphabet_names,
        "class_split": np.array([part for _, _, part in classes], np.int8),
        "split_names": np.array(PARTS),
    }


_SPLITS = Splits.packaged("omniglot")
_CITATION = "Lake et al., One shot learning of simple visual concepts, CogSci 2011"
_OFFICIAL = "https://github.com/brendenlake/omniglot (python/images_background.zip, python/images_evaluation.zip)"
_ACCEPTS = "the folder that holds images_background.zip and images_evaluation.zip, not unpacked"

DATASET = DataSet(
    name="omniglot",
    title="Omniglot",
    summary="handwritten characters of 50 alphabets, binary 28x28",
    kind="characters",
    official=_OFFICIAL,
    accepts=_ACCEPTS,
    licence="MIT",
    citation=_CITATION,
    read=partial(read, Image.Resampling.NEAREST),
    size=28,
    n_classes=1623,
    editions={"all": 32_460},
    splits=_SPLITS,
    ink=0,
)
GRAY = DataSet(
    name="omniglot-gray",
    title="Omniglot (grey)",
    summary="the same drawings, anti-aliased 28x28",
    kind="characters",
    official=_OFFICIAL,
    accepts=_ACCEPTS,
    licence="MIT",
    citation=_CITATION,
    read=partial(read, Image.Resampling.BOX),
    size=28,
    n_classes=1623,
    editions={"all": 32_460},
    splits=_SPLITS,
)
