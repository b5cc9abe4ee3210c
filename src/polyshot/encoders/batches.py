"""One batch of items to vectors: read, look up in the cache, encode what is missing, keep it."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import UnidentifiedImageError

from polyshot.data.images import open_image
from polyshot.encoders.base import Encoder, Vectors
from polyshot.encoders.cache import VectorCache
from polyshot.encoders.items import image_bytes
from polyshot.errors import InputError

Mapper: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


class Unreadable(NamedTuple):
    """Stands in for the vector of an item that cannot be read."""

    reason: str


def encode_batch(
    encoder: Encoder, items: Sequence[Any], cache: VectorCache | None, mapper: Mapper
) -> list[Vectors | Unreadable]:
    """A vector for each item; equal items are encoded once. `mapper` is `map`, perhaps in threads."""
    content, read = {"text": (_text_content, _read_text), "images": (_image_content, _read_image)}[encoder.kind]
    contents = mapper(content, items)
    keys = [c.reason if isinstance(c, Unreadable) else hashlib.sha256(c).digest() for c in contents]
    unique: dict[Any, bytes] = {key: c for key, c in zip(keys, contents, strict=True) if not isinstance(c, Unreadable)}
    found: dict[Any, Vectors | Unreadable] = {c.reason: c for c in contents if isinstance(c, Unreadable)}
    kept = cache if encoder.digest is not None else None
    if kept is not None:
        found |= kept.get(str(encoder.digest), list(unique))
    missing = [key for key in unique if key not in found]
    ready = dict(zip(missing, mapper(lambda key: read(encoder, unique[key]), missing), strict=True))
    found |= {key: item for key, item in ready.items() if isinstance(item, Unreadable)}
    ready = {key: item for key, item in ready.items() if not isinstance(item, Unreadable)}
    if ready:
        fresh: dict[Any, Vectors] = dict(
            zip(ready, _checked(encoder, encoder.encode(list(ready.values())), len(ready)), strict=True)
        )
        found |= fresh
        if kept is not None:
            kept.put(str(encoder.digest), encoder.title, fresh)
    return [found[key] for key in keys]


def _text_content(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # half of a surrogate pair is no character


def _read_text(encoder: Encoder, content: bytes) -> str:
    return content.decode()


def _image_content(item: Any) -> bytes | Unreadable:
    try:
        return image_bytes(item)
    except Exception as error:  # Pillow raises many kinds on broken files
        return Unreadable(_reason(error))


def _read_image(encoder: Encoder, content: bytes) -> Any:
    try:
        return encoder.prepare(open_image(content, encoder.mode))
    except Exception as error:
        return Unreadable(_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _checked(encoder: Encoder, vectors: Vectors, n: int) -> Vectors:
    if vectors.ndim != 2 or len(vectors) != n or not vectors.shape[1]:
        raise InputError(f"{encoder.title} returned {list(vectors.shape)} for {n} items; it must return [{n}, d]")
    if not np.isfinite(vectors).all():
        raise InputError(f"{encoder.title} returned NaN or infinity; every number must be finite")
    return vectors
