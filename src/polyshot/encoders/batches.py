"""One batch of items to vectors: read, look up in the cache, encode what is missing, keep it."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import UnidentifiedImageError

from polyshot.data.images import open_image
from polyshot.encoders.base import Encoder, Vectors
from polyshot.encoders.cache import VectorCache
from polyshot.encoders.items import ImageItem, image_bytes
from polyshot.errors import InputError


class Unreadable(NamedTuple):
    """Stands in for the vector of an item that cannot be read."""

    reason: str


def encode_batch(
    encoder: Encoder, items: Sequence[Any], cache: VectorCache | None, pool: Executor
) -> list[Vectors | Unreadable]:
    """A vector for each item; equal items are encoded once, and those in the cache not at all."""
    images = encoder.kind == "images"
    contents: list[bytes | Unreadable] = list(pool.map(_file, items)) if images else [_utf8(item) for item in items]
    keys: list[Any] = [hashlib.sha256(c).digest() if isinstance(c, bytes) else c for c in contents]
    unique: dict[bytes, bytes] = {k: c for k, c in zip(keys, contents, strict=True) if isinstance(c, bytes)}
    vectors: dict[Any, Vectors | Unreadable] = {c: c for c in contents if isinstance(c, Unreadable)}
    if cache is not None and encoder.digest is not None:
        vectors |= cache.get(encoder.digest, list(unique))
    missing = {key: content for key, content in unique.items() if key not in vectors}
    read = pool.map(partial(_prepared, encoder), missing.values()) if images else map(bytes.decode, missing.values())
    ready = dict(zip(missing, read, strict=True))
    vectors |= {key: item for key, item in ready.items() if isinstance(item, Unreadable)}
    ready = {key: item for key, item in ready.items() if not isinstance(item, Unreadable)}
    if ready:
        fresh = dict(zip(ready, _checked(encoder, encoder.encode(list(ready.values())), len(ready)), strict=True))
        vectors |= fresh
        if cache is not None and encoder.digest is not None:
            cache.put(encoder.digest, encoder.title, fresh)
    return [_named(item, vectors[key]) for item, key in zip(items, keys, strict=True)]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # half of a surrogate pair is no character


def _file(item: ImageItem) -> bytes | Unreadable:
    try:
        return image_bytes(item)
    except Exception as error:
        return _unreadable(error)


def _prepared(encoder: Encoder, content: bytes) -> Any:
    try:
        return encoder.prepare(open_image(content, encoder.mode))
    except Exception as error:  # Pillow raises many kinds on broken files
        return _unreadable(error)


def _unreadable(error: Exception) -> Unreadable:
    if isinstance(error, UnidentifiedImageError):
        return Unreadable("not an image")
    if isinstance(error, OSError) and error.strerror:
        return Unreadable(error.strerror)
    return Unreadable(str(error) or type(error).__name__)


def _named(item: Any, vector: Vectors | Unreadable) -> Vectors | Unreadable:
    """With the path of a file that cannot be read."""
    return (
        Unreadable(f"{item}: {vector.reason}") if isinstance(vector, Unreadable) and isinstance(item, Path) else vector
    )


def _checked(encoder: Encoder, vectors: Vectors, n: int) -> Vectors:
    if vectors.ndim != 2 or len(vectors) != n or not vectors.shape[1]:
        raise InputError(f"{encoder.title} returned {list(vectors.shape)} for {n} items; it must return [{n}, d]")
    if not np.isfinite(vectors).all():
        raise InputError(f"{encoder.title} returned NaN or infinity; every number must be finite")
    return vectors
