"""EMNIST by-class (Cohen et al., 2017): 62 handwritten digits and letters, 814,255 images."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from polyshot.data.class_splits import Splits
from polyshot.data.dataset import DataSet
from polyshot.data.images import OnProgress
from polyshot.data.npz import UNREADABLE
from polyshot.data.packed import Array
from polyshot.errors import DataError

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PARTS = ("train", "test")
_MOST_BYTES = 2**30  # of one file: EMNIST's largest has 547 million


def read(path: Path, size: int, progress: OnProgress) -> Mapping[str, Array]:
    """Read `gzip.zip`, or the folder with the four `emnist-byclass-*.gz`."""
    if path.suffix == ".mat":
        raise DataError(
            f"{path}: MATLAB files are not read, because a damaged one can crash their reader; give {DATASET.accepts}"
        )
    parts = [_read_idx(path, part) for part in _PARTS]
    for done, (images, labels) in enumerate(parts, start=1):
        if images.ndim != 3 or images.shape[1:] != (28, 28) or len(images) != len(labels) or labels.max() > 61:
            raise DataError(
                f"{path}: not EMNIST by-class: images {list(images.shape)}, {len(labels)} labels up to "
                f"{labels.max()}; they must be [n, 28, 28] and n labels in 0..61"
            )
        progress(done, len(parts))
    images = np.concatenate([images for images, _ in parts])
    return {
        "images": np.ascontiguousarray(images.swapaxes(1, 2)),  # published transposed
        "labels": np.concatenate([labels for _, labels in parts]).astype(np.int16),
        "part": np.repeat(np.arange(2, dtype=np.int8), [len(labels) for _, labels in parts]),
        "class_names": np.array(list(CHARACTERS)),
    }


def _read_idx(path: Path, part: str) -> tuple[Array, Array]:
    """Read images [n, 28, 28] and labels [n] of one part from the gzipped idx files."""
    arrays = []
    for content, magic in (("images-idx3", b"\0\0\x08\x03"), ("labels-idx1", b"\0\0\x08\x01")):
        name = f"emnist-byclass-{part}-{content}-ubyte.gz"
        try:
            gzip = zlib.decompressobj(wbits=31)
            raw = gzip.decompress(_find(path, name), _MOST_BYTES)
            if not gzip.eof:
                raise EOFError("it is cut short, or too large")
            dimensions = raw[3] if raw[:4] == magic else 0
            shape = np.frombuffer(raw, ">u4", dimensions, 4)
        except UNREADABLE as error:
            raise DataError(f"{path}: {name} is not a complete gzip file ({error}); fetch it again") from error
        data = np.frombuffer(raw, np.uint8, offset=min(len(raw), 4 + 4 * dimensions))
        if not dimensions or len(data) != np.prod(shape, dtype=np.int64):
            raise DataError(f"{path}: {name} is not an idx file of EMNIST, or is cut short; fetch it again")
        arrays.append(data.reshape(shape))
    return arrays[0], arrays[1]


def _find(path: Path, name: str) -> bytes:
    """Return the bytes of one published file, in a folder or in a zip."""
    if path.is_dir():
        found = sorted(path.rglob(name))
        if found:
            return found[0].read_bytes()
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if members := [m for m in archive.infolist() if m.filename.rsplit("/", 1)[-1] == name]:
                return archive.open(members[0]).read(_MOST_BYTES)
    raise DataError(f"{path}: no {name} in it; give {DATASET.accepts}")


DATASET = DataSet(
    name="emnist",
    title="EMNIST",
    summary="handwritten digits and letters, by class, grey 28x28",
    kind="characters",
    official="https://www.nist.gov/itl/products-and-services/emnist-dataset (gzip.zip)",
    accepts="gzip.zip, or a folder with its four emnist-byclass-*-ubyte.gz",
    licence="public domain (NIST)",
    citation="Cohen et al., EMNIST: an extension of MNIST to handwritten letters, IJCNN 2017",
    read=read,
    size=28,
    n_classes=62,
    editions={"official test split": 116_323, "all": 814_255},
    splits=Splits.packaged("emnist"),
)
