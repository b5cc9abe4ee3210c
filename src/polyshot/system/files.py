"""The only way to write a file: completely, or not at all."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from polyshot.errors import DataError


def write_atomically(path: Path, content: bytes) -> None:
    """Write the whole content, or leave what was there before."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` once everything is written; after an error `path` is as before.

    The temporary file is in the same folder, has a name that nobody can guess, and is never a link.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path.name), suffix=".part")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def open_log(path: Path) -> BinaryIO:
    """A log to append to, as other processes may at the same time; an OSError where it is a link."""
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666))


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove the temporary files that killed writers of these files left in the folder; nobody may be writing there."""
    prefixes = tuple(map(_prefix, names))
    for file in folder.glob(".*"):
        if file.name.startswith(prefixes):
            with contextlib.suppress(OSError):
                file.unlink()


def _prefix(name: str) -> str:
    """How temporary names of a file begin; of a long name there is only a checksum, because names have 255 bytes."""
    content = os.fsencode(name)
    return f".{name if len(content) <= 200 else hashlib.sha256(content).hexdigest()}."


def _umask() -> int:
    """Return the process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
