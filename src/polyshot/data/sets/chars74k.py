"""Chars74K (de Campos et al., 2009), the handwritten part: the 62 classes of EMNIST, 55 writers."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import ImageOps

from polyshot.data.class_splits import Splits
from polyshot.data.dataset import DataSet
from polyshot.data.images import OnProgress, centre_character, map_images, open_image
from polyshot.data.packed import Array
from polyshot.data.sets.emnist import CHARACTERS
from polyshot.errors import DataError


def read(path: Path, size: int, progress: OnProgress) -> Mapping[str, Array]:
    """Read the unpacked EnglishHnd folder: `.../Img/Sample001` to `Sample062`, dark pen on white."""
    files = sorted(path.rglob("Sample0[0-9][0-9]/*.png"))
    if not files:
        raise DataError(f"{path}: no Sample001/*.png in it; give {DATASET.accepts}")
    labels = np.array([int(file.parent.name[-3:]) - 1 for file in files])
    if labels.min() < 0 or labels.max() >= len(CHARACTERS):
        raise DataError(f"{path}: the sample folders must be Sample001 to Sample062, for the characters {CHARACTERS}")

    def draw(file: Path) -> np.ndarray:
        ink = ImageOps.invert(open_image(file, "L"))
        return np.asarray(centre_character(ink, ink.getbbox(), size))

    images = map_images(draw, files, [str(file) for file in files], str(path), progress)
    return {
        "images": np.stack(images),
        "labels": labels.astype(np.int16),
        "class_names": np.array(list(CHARACTERS)),
    }


DATASET = DataSet(
    name="chars74k",
    title="Chars74K",
    summary="handwritten digits and letters of 55 writers, grey 28x28",
    kind="characters",
    official="https://info-ee.surrey.ac.uk/CVSSP/demos/chars74k/ (EnglishHnd.tgz)",
    accepts="the unpacked EnglishHnd folder, with Img/Sample001 to Img/Sample062 in it",
    licence="research use",
    citation="de Campos et al., Character recognition in natural images, VISAPP 2009",
    read=read,
    size=28,
    n_classes=62,
    editions={"all": 3_410},
    splits=Splits.packaged("chars74k"),
)
