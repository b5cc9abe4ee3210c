"""Small pictures of images for the pages: decoded here, so that no byte of a file itself reaches the browser."""

import io
from typing import Any

from polyshot.data.images import open_image
from polyshot.encoders.items import image_bytes, image_items


def thumbnail(content: Any, size: int) -> bytes | None:
    """The image as a JPEG file that fits into size x size pixels; None if it cannot be read any more."""
    try:
        image = open_image(image_bytes(image_items([content])[0]), "RGB")
    except Exception:  # Pillow raises many kinds
        return None
    image.thumbnail((size, size))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
