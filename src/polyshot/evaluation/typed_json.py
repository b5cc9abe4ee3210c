"""Dataclasses to JSON values and back: what is written as an object is read as that object.

Floats are written with six significant digits, NaN as null. A field with a default may be missing in the file. Only
fields whose metadata say "infinite" may hold infinity.
"""

import dataclasses
import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from polyshot.errors import DataError

T = TypeVar("T")
_WORDS = {int: "a whole number", str: "a text", float: "a number"}
_LARGEST = 1e100  # beyond it, products of a few numbers overflow; no figure comes near


def rounded(x: float) -> float:
    """A number with six significant digits, which is what files hold."""
    return float(f"{x:.6g}")


def encode(value: Any) -> Any:
    """Convert dataclasses, mappings, sequences and arrays to plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: encode(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [encode(part) for part in value]
    if isinstance(value, (float, np.floating)):
        return None if math.isnan(value) else rounded(float(value))
    return value.item() if isinstance(value, np.generic) else value


def decode(kind: type[T], value: Any, where: str) -> T:
    """Build a dataclass from a JSON object; a wrong or missing field is a DataError that begins with `where`."""
    if not isinstance(value, dict):
        raise DataError(f"{where} must be an object, not {_shown(value)}")
    hints, given = get_type_hints(kind), {}
    lengths: dict[str, int] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in value:
            given[field.name] = _decode(hints[field.name], value[field.name], f"{where}: {field.name}")
            _check_shape(hints[field.name], given[field.name], lengths, f"{where}: {field.name}")
            _check_size(given[field.name], "infinite" in field.metadata, f"{where}: {field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DataError(f"{where}: {field.name} is missing")
    return kind(**given)


def _decode(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) in (UnionType, Union):
        if value is None:
            return None
        return _decode(next(part for part in get_args(hint) if part is not NoneType), value, where)
    origin, parts = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return decode(hint, value, where)
    if hasattr(hint, "array_type"):
        return _array(hint, value, where)
    if origin is dict:
        _check(isinstance(value, dict), where, "an object", value)
        return {key: _decode(parts[1], part, f"{where}: {key}") for key, part in value.items()}
    if origin is tuple:
        _check(isinstance(value, list), where, "a list", value)
        return tuple(_decode(parts[0], part, f"{where}: {i}") for i, part in enumerate(value))
    if origin is Literal:
        _check(value in parts, where, " or ".join(map(repr, parts)), value)
        return value
    if hint is float:
        if value is None:
            return math.nan
        _check(type(value) is float or (type(value) is int and abs(value) < 2**63), where, _WORDS[float], value)
        return float(value)
    if hint in _WORDS:
        _check(type(value) is hint, where, _WORDS[hint], value)
    return value


def _array(hint: Any, value: Any, where: str) -> Any:
    """An array of numbers, as the hint's dtype says: whole numbers, or floats with NaN for null."""
    _check(isinstance(value, list), where, "a list", value)
    whole = "float64" not in hint.dtypes
    try:
        array = np.array(value, dtype=object)
        numbers = all(type(x) is int or (not whole and type(x) in (float, NoneType)) for x in array.flat)
        result = array.astype(np.int64 if whole else np.float64) if numbers else None
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{where} must be a list of numbers, with rows of equal length") from error
    _check(numbers, where, f"a list of {'whole ' * whole}numbers", value)
    return result


def _check_shape(hint: Any, array: Any, lengths: dict[str, int], where: str) -> None:
    """Check that axes of one name have one length within an object, and that there is one edge more than bins."""
    if not hasattr(hint, "array_type"):
        return
    axes = hint.dim_str.split()
    fits = len(axes) == array.ndim and all(
        lengths.setdefault(axis, n) == n for axis, n in zip(axes, array.shape, strict=True)
    )
    if not fits or ("bins" in lengths and lengths.get("edges") != lengths["bins"] + 1):
        raise DataError(f"{where} has the shape {list(array.shape)}, which does not fit the other lists of its object")


def _check_size(value: Any, infinite: bool, where: str) -> None:
    """Check that numbers are of a size to compute with; NaN stands for a figure that there is not."""
    if isinstance(value, float | np.ndarray):
        size = np.abs(value)
        absurd = (size > _LARGEST) & ~(infinite & np.isinf(size))
        _check(not absurd.any(), where, f"at most {_LARGEST:g} in size", value)


def _check(fine: bool, where: str, expected: str, value: Any) -> None:
    if not fine:
        raise DataError(f"{where} must be {expected}, not {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
