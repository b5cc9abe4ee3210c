"""Reads the plain arrays of an `.npz` file; its headers are checked before any memory is allocated."""

import math
import sys
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from polyshot.errors import DataError

# what the standard library and numpy raise on a damaged zip, gzip or npz file
UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    RuntimeError,
    MemoryError,
    LookupError,
    TypeError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
)
_PLAIN = "biufcmMSU"  # kinds of dtype without pointers
_ALWAYS_ALLOWED = 2**30  # bytes
_MOST_PER_BYTE = 200  # bytes of arrays per byte of the file: real data compress less


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an npz by field.

    Each header must agree with the size that the zip directory states. Together the arrays may take 1 GiB, or 200 times
    the size of the file if that is more.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            total = sum(info.file_size for info in members.values())
            most = max(_ALWAYS_ALLOWED, _MOST_PER_BYTE * path.stat().st_size)
            if total > most:
                raise ValueError(f"it announces {total:,} bytes; a file of its size may hold {most:,}")
            return {field: _read(archive, info) for field, info in members.items()}
    except UNREADABLE as error:
        raise DataError(f"{path}: not a readable .npz of plain arrays ({error}); fetch or import it again") from error


def list_fields(path: Path) -> list[str]:
    """Return the names of an npz's fields, without reading them."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except UNREADABLE as error:
        raise DataError(f"{path}: not a readable .npz ({error})") from error


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    shape, dtype, start = _read_header(archive, info)
    n_bytes = math.prod(shape) * dtype.itemsize
    if dtype.kind not in _PLAIN or not dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError(f"{info.filename} has type {dtype} and shape {shape}, and is not a plain array")
    if start + n_bytes != info.file_size:
        raise ValueError(f"{info.filename} announces {n_bytes:,} bytes, but has {info.file_size - start:,}")
    with archive.open(info) as member:
        array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        member.read(1)  # at the end of the member its checksum is compared
    if dtype.kind == "U" and (np.frombuffer(array.tobytes(), f"{dtype.str[0]}u4") > sys.maxunicode).any():
        raise ValueError(f"{info.filename} has numbers that stand for no character")
    return array


def _read_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return shape, type, and where the data start."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in readers:
            raise ValueError(f"{info.filename} has format version {version}, which plain arrays do not need")
        shape, _, dtype = readers[version](member)
        return shape, dtype, member.tell()
