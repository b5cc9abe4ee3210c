"""From what people have to a list of items: strings, or images in any form, and from those to image files."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyshot.errors import InputError

ImageItem: TypeAlias = Path | bytes | Image.Image | NDArray[np.uint8]
_MOST_BYTES = 2**28  # of an image file
_SHOWN = 20  # rows that a message lists
_SAVED_AS_THEY_ARE = ("1", "L", "LA", "P", "RGB", "RGBA")


def text_items(X: Any) -> list[str]:
    """A list of strings from a list, an array or a pandas Series; whatever is no string is named in one error."""
    items = _as_list(X, "texts")
    wrong = {row: _described(item) for row, item in enumerate(items) if not isinstance(item, str)}
    if wrong:
        raise InputError(f"texts must be strings; fill or drop missing ones\n{list_rows(wrong)}")
    return [str(item) for item in items]


def image_items(X: Any) -> list[ImageItem]:
    """Paths, image files as bytes, PIL images or pixels; whatever is none of these is named in one error."""
    items = _as_list(X, "images")
    shape: tuple[int, ...] = tuple(getattr(X, "shape", ()))
    if len(shape) == 3 and shape[2] in (3, 4):
        raise InputError(f"pixels {list(shape)} look like a single image; put it in a list: [x]")
    found: list[ImageItem] = []
    wrong = {}
    for row, item in enumerate(items):
        if isinstance(item, (str, os.PathLike)):
            found.append(Path(item))
        elif isinstance(item, (bytes, bytearray)):
            found.append(bytes(item))
        elif isinstance(item, Image.Image):
            found.append(item)
        else:
            try:
                found.append(_pixels(np.asarray(item)))
            except (InputError, TypeError, ValueError) as error:
                wrong[row] = str(error)
    if wrong:
        raise InputError(
            "images are paths, bytes of image files, PIL images, or uint8 pixels [h, w], [h, w, c] or [c, h, w] with "
            f"1, 3 or 4 channels\n{list_rows(wrong)}"
        )
    return found


def image_bytes(item: ImageItem) -> bytes:
    """An image file: the one on disk, or a PNG of pixels in memory, which loses nothing."""
    if isinstance(item, bytes):
        return item
    if isinstance(item, Path):
        if not item.is_file():
            raise InputError("no such file")
        if item.stat().st_size > _MOST_BYTES:
            raise InputError(f"larger than {_MOST_BYTES // 2**20} MB")
        return item.read_bytes()
    image = item if isinstance(item, Image.Image) else Image.fromarray(np.ascontiguousarray(item))
    exif = image.getexif()
    whole = image if image.mode in _SAVED_AS_THEY_ARE else image.convert("RGB")
    buffer = io.BytesIO()
    whole.save(buffer, "PNG", compress_level=0, **({"exif": exif} if len(exif) else {}))
    return buffer.getvalue()


def list_rows(reasons: dict[int, str]) -> str:
    """One line per row; of many, the first."""
    lines = [f"  row {row}: {reason}" for row, reason in list(reasons.items())[:_SHOWN]]
    if len(reasons) > _SHOWN:
        lines.append(f"  and {len(reasons) - _SHOWN} more")
    return "\n".join(lines)


def _as_list(X: Any, what: str) -> Sequence[Any]:
    """The items of a list, array, Series, tensor, or table of one column."""
    if isinstance(X, (str, bytes, os.PathLike, Image.Image)):
        raise InputError(f"expected a list of {what}, got a single {type(X).__name__}; put it in a list: [x]")
    X = getattr(X, "to_numpy", lambda: X)()  # pandas, polars
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    try:
        n = len(X)
    except TypeError:
        raise InputError(f"expected a list of {what}, got {type(X).__name__}") from None
    if n == 0:
        raise InputError(f"there are no {what} to encode; at least one is needed")
    if isinstance(X, np.ndarray):
        if X.ndim == 2 and X.dtype.kind in "OUST":
            if X.shape[1] != 1:
                raise InputError(f"{what} must be one column, not a table of {X.shape[1]}; choose a column")
            X = X[:, 0]
        return X.tolist() if X.dtype.kind in "OUST" else list(X)
    return X if isinstance(X, (list, tuple)) else list(X)


def _described(item: Any) -> str:
    return f"{repr(item)[:40]} ({type(item).__name__})"


def _pixels(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """The same pixels as [h, w] or [h, w, c]; nothing is copied."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise InputError(f"{pixels.dtype} {list(pixels.shape)}")
    if pixels.ndim == 2:
        return pixels
    last = pixels if pixels.shape[2] in (1, 3, 4) else pixels.transpose(1, 2, 0)
    if last.shape[2] not in (1, 3, 4):
        raise InputError(f"{list(pixels.shape)} has no axis of 1, 3 or 4 channels")
    return last[:, :, 0] if last.shape[2] == 1 else last
