"""The one way to write a file: whole, or not at all."""

import contextlib
import os
from pathlib import Path

from polyshot.errors import DataError


def write_atomically(path: Path, content: bytes) -> None:
    """The whole content under that name, or what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
