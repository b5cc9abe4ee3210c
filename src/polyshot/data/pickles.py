"""Reads pickles of plain arrays.

The public mini-ImageNet caches are pickles. A pickle is a small program, so this reader lets it build containers,
texts and numbers only. It calls none of numpy's own functions for unpickling: numeric arrays are rebuilt here from
their bytes, after type, shape and length were checked. Treat a pickle from a stranger with care all the same, since
Python's unpickler itself is not made for hostile files.
"""

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from polyshot.errors import DataError

_STORE = {"PUT", "BINPUT", "LONG_BINPUT"}


def read_plain_pickle(path: Path) -> Any:
    """Unpickle lists, tuples, dictionaries, texts, numbers and numeric numpy arrays; refuse anything else."""
    try:
        content = path.read_bytes()
        _scan(content)
        # latin1: the usual mini-ImageNet caches were written by Python 2
        return _plain(_PlainUnpickler(io.BytesIO(content), encoding="latin1").load())
    except Exception as error:  # a broken pickle can raise anything
        raise DataError(
            f"{path}: not a pickle of plain arrays ({error}); nothing else is loaded, since a pickle can run "
            "code. Export its images to folders and import those"
        ) from error


def _scan(content: bytes) -> None:
    """Refuse stated lengths beyond the end of the file, and memo numbers that would allocate gigabytes."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in _STORE and argument is not None and int(argument) > len(content):
            raise pickle.UnpicklingError(f"it stores an object under the number {argument}")


class _Call:
    """A function that a pickle may call; it cannot be changed by the pickle."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it changes a function")


class _Dtype:
    """A plain numeric type, such as `|u1`; its state may only be a byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"b1|[iu][1248]|f[248]", str(code)):
            raise pickle.UnpicklingError(f"it has an array of type {code!r}, which is not a plain number")
        self.code, self.order = str(code), "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]) or state[7:] != (0,):
            raise pickle.UnpicklingError("it has an array of a type with fields")
        self.order = state[1]

    def array(self, shape: object, raw: object, order: object) -> npt.NDArray[Any]:
        """Return the array with these bytes."""
        dtype = np.dtype(f"{self.order}{self.code}")
        content = raw.encode("latin1") if isinstance(raw, str) else raw
        if not (
            isinstance(shape, tuple)
            and len(shape) <= 8
            and all(type(side) is int and side >= 0 for side in shape)
            and isinstance(content, bytes | bytearray)
            and math.prod(shape) * dtype.itemsize == len(content)
            and order in ("C", "F")
        ):
            raise pickle.UnpicklingError(f"it has an array whose shape {shape!r} does not fit its content")
        return np.frombuffer(content, dtype).reshape(shape, order=order)


class _Array:
    """An array to be: its state says what it holds."""

    __slots__ = ("value",)

    def __init__(self, *_: object) -> None:
        self.value: npt.NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self.value = _dtype(dtype).array(shape, raw, "F" if fortran else "C")


def _dtype(value: object) -> _Dtype:
    if not isinstance(value, _Dtype):
        raise pickle.UnpicklingError("it has an array without a type")
    return value


def _scalar(dtype: object, raw: object) -> Any:
    return _dtype(dtype).array((), raw, "C").item()


def _from_buffer(raw: object, dtype: object, shape: object, order: object, *_: object) -> npt.NDArray[Any]:
    return _dtype(dtype).array(shape, raw, order)


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it has a text in the encoding {encoding!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


_KNOWN: Mapping[tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,  # as protocols 0 to 2 write b""
    ("collections", "OrderedDict"): dict,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): None,
    ("numpy.multiarray", "_reconstruct"): _Array,
    ("numpy.multiarray", "scalar"): _scalar,
    ("numpy.numeric", "_frombuffer"): _from_buffer,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return our stand-in for what numpy uses to rebuild an array."""
        place = re.sub(r"^numpy\._?core\.", "numpy.", module), name
        if place not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Call(_KNOWN[place]) if _KNOWN[place] else name


def _plain(value: Any, depth: int = 0) -> Any:
    """The content with its arrays in place, three containers deep."""
    if isinstance(value, _Array):
        return value.value
    if depth == 3 or not isinstance(value, dict | list | tuple):
        return value
    if isinstance(value, dict):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    return type(value)(_plain(item, depth + 1) for item in value)
