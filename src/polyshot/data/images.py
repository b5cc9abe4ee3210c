"""Image files to pixels, many at a time; all files that cannot be read are named in one error."""

import io
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from polyshot.errors import DataError

OnProgress: TypeAlias = Callable[[int, int], None]  # called with (done, total)
Item = TypeVar("Item")
Result = TypeVar("Result")

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")  # Pillow reads these without other programs
MOST_PIXELS = 64_000_000
_MOST_BYTES = 2**28
_LARGE = 8_000_000  # pixels; larger images are decoded one at a time, to bound the memory
_one_large = threading.Lock()


def ignore_progress(done: int, total: int) -> None:
    """Report to nobody."""


def map_images(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    names: Sequence[str],
    source: str,
    progress: OnProgress = ignore_progress,
) -> list[Result]:
    """Return `function` of every item, in order; one DataError names all items that failed."""
    results, failures = _try_all(function, items, progress)
    if failures:
        listing = "\n".join(f"  {names[row]}: {reason}" for row, reason in failures.items())
        raise DataError(
            f"{source}: {len(failures)} of {len(items)} images cannot be read; replace or delete them:\n{listing}"
        )
    return results


def unreadable_images(files: Sequence[str | Path]) -> dict[int, str]:
    """Return the rows of the files that are no readable images, each with the reason."""
    return _try_all(lambda file: open_image(Path(file), "RGB").size, files, ignore_progress)[1]


def _try_all(
    function: Callable[[Item], Result], items: Sequence[Item], progress: OnProgress
) -> tuple[list[Result], dict[int, str]]:
    """What `function` returns for the items that it takes, and for each of the others the reason."""
    results: list[Result] = []
    failures: dict[int, str] = {}
    # Pillow releases the GIL while it decodes
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(function, item) for item in items]
        for row, future in enumerate(futures):
            try:
                results.append(future.result())
            except Exception as error:  # Pillow raises many kinds on broken files
                failures[row] = _reason(error)
            progress(row + 1, len(items))
    return results, failures


def open_image(source: Path | bytes, mode: str) -> Image.Image:
    """Return the whole image, decoded and upright, on white where it is transparent, as `mode` ("RGB" or "L")."""
    with _open(source) as image:
        if image.width * image.height <= _LARGE:
            return _decoded(image, mode)
        with _one_large:
            return _decoded(image, mode)


def fit_square(image: Image.Image, size: int) -> Image.Image:
    """Crop the centre square, then resize it to `size` pixels."""
    if image.size == (size, size):
        return image
    return ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)


def centre_character(ink: Image.Image, box: tuple[int, int, int, int] | None, size: int) -> Image.Image:
    """Put the character in `box`, bright on black, in the middle of a square with a tenth of margin on each side."""
    left, top, right, bottom = box or (0, 0, *ink.size)
    side = round(1.2 * max(right - left, bottom - top))
    left, top = (left + right - side) // 2, (top + bottom - side) // 2
    return ink.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BOX)


def decode_images(blobs: Sequence[bytes], names: Sequence[str], source: str) -> UInt8[Tensor, "n 3 h w"]:
    """Return encoded images of one size as one tensor."""
    arrays = map_images(lambda blob: np.asarray(open_image(blob, "RGB")), blobs, names, source)
    sizes = {array.shape for array in arrays}
    if len(sizes) > 1:
        odd = next(name for name, array in zip(names, arrays, strict=True) if array.shape != arrays[0].shape)
        raise DataError(
            f"{source}: images must have one size, but {names[0]} and {odd} differ; import them with one --size"
        )
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()


def encode_square(path: Path, size: int) -> bytes:
    """Return an image file as a `size` x `size` JPEG; a file that already is one is kept byte for byte."""
    with _open(path) as image:
        keep = image.format == "JPEG" and image.mode == "RGB" and image.size == (size, size)
    upright = open_image(path, "RGB")
    if keep:
        return path.read_bytes()
    buffer = io.BytesIO()
    fit_square(upright, size).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def encode_pixels(pixels: np.ndarray) -> bytes:
    """Return uint8 [h, w, 3] as PNG, which loses nothing."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _open(source: Path | bytes) -> Image.Image:
    """Open an image of an allowed format and size; nothing is decoded yet."""
    if isinstance(source, Path) and source.stat().st_size > _MOST_BYTES:
        raise DataError(f"larger than {_MOST_BYTES // 2**20} MB; make it smaller")
    image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise DataError(
            f"{image.width} x {image.height} pixels; at most {MOST_PIXELS // 10**6} million are read: make it smaller"
        )
    return image


def _decoded(image: Image.Image, mode: str) -> Image.Image:
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(white, upright.convert("RGBA"))
    return upright.convert(mode)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"not an image in one of the formats {', '.join(FORMATS)}"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"more than {MOST_PIXELS // 10**6} million pixels; make it smaller"
    return str(error) or type(error).__name__
