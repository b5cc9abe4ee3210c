"""A lock that one process holds at a time, on every operating system."""

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polyshot.errors import DataError, TrainingError
from polyshot.system.files import remove_leftovers

_LOCKED_BYTE = 2**30  # beyond the text: Windows lets nobody read a locked byte


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; a TrainingError names the process that holds it already.

    The operating system releases the lock when the process ends, however it ends. So a lock file that a killed process
    left behind locks nothing.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _acquire(path)
    except OSError as error:
        raise DataError(f"{path.parent}: cannot be written ({error.strerror})") from error
    try:
        with contextlib.suppress(OSError):  # a full disk: others are told of "another process"
            os.truncate(file, 0)
            os.write(file, f"process {os.getpid()} on {platform.node()}".encode())
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows does not remove an open file
            path.unlink()
        os.close(file)


@contextmanager
def only_writer(path: Path, *targets: Path) -> Iterator[None]:
    """Hold the lock file `path`, and tidy up after killed writers of the target files."""
    with locked(path):
        for target in targets:
            remove_leftovers(target.parent, [target.name])
        yield


def _acquire(path: Path) -> int:
    """Open and lock the file; if its holder removed it in between, try again."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        if not _lock(file):
            holder = os.read(file, 200).decode(errors="replace") or "another process"
            os.close(file)
            raise TrainingError(f"{path.parent}: {holder} is using this folder; wait until it ends, or stop it")
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)


def _lock(file: int) -> bool:
    """Lock an open file; False if somebody else has locked it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            os.lseek(file, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        if sys.platform == "win32":
            os.lseek(file, 0, os.SEEK_SET)
        return False
    return True
