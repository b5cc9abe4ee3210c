"""Image files to pixels, many at a time; files that cannot be read are all named in one error."""

import io
import os
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

Progress: TypeAlias = Callable[[int, int], None]  # called with (done, total)
Item = TypeVar("Item")
Result = TypeVar("Result")


def ignore_progress(done: int, total: int) -> None:
    """Report to nobody."""


def map_images(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    names: Sequence[str],
    source: str,
    progress: Progress = ignore_progress,
) -> list[Result]:
    """`function` of every item, in order; the names of all items that failed come in one DataError."""
    results: list[Result] = []
    failures: list[str] = []
    # Pillow releases the GIL while it decodes
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(function, item) for item in items]
        for done, (future, name) in enumerate(zip(futures, names, strict=True), start=1):
            try:
                results.append(future.result())
            except Exception as error:  # Pillow raises many kinds on broken files
                reason = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
                failures.append(f"  {name}: {reason}")
            progress(done, len(items))
    if failures:
        listing = "\n".join(failures)
        raise DataError(
            f"{source}: {len(failures)} of {len(items)} images cannot be read; replace or delete\n{listing}"
        )
    return results


def open_image(source: Path | bytes, mode: str) -> Image.Image:
    """The whole image, decoded and upright, on white where it is transparent, as `mode` ("RGB" or "L")."""
    with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
        image.load()
        upright = ImageOps.exif_transpose(image)
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(white, upright.convert("RGBA"))
    return upright.convert(mode)


def fit_square(image: Image.Image, size: int) -> Image.Image:
    """Centre crop to a square, then resize to `size` pixels."""
    if image.size == (size, size):
        return image
    return ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)


def centre_character(ink: Image.Image, box: tuple[int, int, int, int] | None, size: int) -> Image.Image:
    """The character in `box`, bright on black, in the middle of a square with a tenth of margin on each side."""
    left, top, right, bottom = box or (0, 0, *ink.size)
    side = round(1.2 * max(right - left, bottom - top))
    left, top = (left + right - side) // 2, (top + bottom - side) // 2
    return ink.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BOX)


def decode_images(blobs: Sequence[bytes], names: Sequence[str], source: str) -> UInt8[Tensor, "n 3 h w"]:
    """Encoded images of one size as one tensor."""
    arrays = map_images(lambda blob: np.asarray(open_image(blob, "RGB")), blobs, names, source)
    sizes = {array.shape for array in arrays}
    if len(sizes) > 1:
        odd = next(name for name, array in zip(names, arrays, strict=True) if array.shape != arrays[0].shape)
        raise DataError(
            f"{source}: images must have one size; {names[0]} and {odd} differ. Import them with one --size"
        )
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()


def encode_square(path: Path, size: int) -> bytes:
    """An image file as a `size` x `size` JPEG; a file that is one already is taken byte for byte."""
    raw = path.read_bytes()
    with Image.open(io.BytesIO(raw)) as image:
        keep = image.format == "JPEG" and image.mode == "RGB" and image.size == (size, size)
    upright = open_image(raw, "RGB")
    if keep:
        return raw
    buffer = io.BytesIO()
    fit_square(upright, size).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def encode_pixels(pixels: np.ndarray) -> bytes:
    """uint8 [h, w, 3] as PNG, which loses nothing."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
