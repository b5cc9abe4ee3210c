"""A method's options are the keyword arguments of its constructor: listed, checked and read from text here."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from polyshot.errors import InputError


@dataclass(frozen=True)
class Option:
    """One option of a method: its type, as `choices` where they are named, and its default."""

    name: str
    types: tuple[type, ...]
    choices: tuple[str, ...]
    default: Any

    @property
    def kind(self) -> str:
        """For help texts, such as "float" or "ml | pl"."""
        return " | ".join(self.choices or [t.__name__ for t in self.types if t is not NoneType])


def method_options(method: type) -> dict[str, Option]:
    """The keyword-only arguments of the constructor."""
    hints = get_type_hints(method.__init__)  # type: ignore[misc]
    return {
        name: _option(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _option(name: str, hint: Any, default: Any) -> Option:
    if get_origin(hint) is Literal:
        return Option(name, (str,), get_args(hint), default)
    return Option(name, get_args(hint) if isinstance(hint, UnionType) else (hint,), (), default)


def check_options(name: str, method: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, text turned into the option's type; an unknown name or a wrong value is an InputError."""
    known = method_options(method)
    if unknown := sorted(set(values) - set(known)):
        raise InputError(f"{name} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    return {key: _converted(name, known[key], value) for key, value in values.items()}


def check_choices(method: type, **values: str) -> None:
    """InputError unless each value is one that the option of that name has."""
    known = method_options(method)
    for key, value in values.items():
        _converted(method.__name__, known[key], value)


def _converted(method: str, option: Option, value: Any) -> Any:
    wanted = f"{method}'s option {option.name} is {option.kind}, not {value!r}"
    if option.choices:
        if value in option.choices:
            return value
        raise InputError(wanted)
    if value is None and NoneType in option.types:
        return None
    target = next(t for t in option.types if t is not NoneType)
    if isinstance(value, str) and target is bool:
        value = {"true": True, "false": False}.get(value.lower(), value)
    if target in (int, float) and not isinstance(value, bool):
        try:
            value = int(value) if target is int and float(value) == int(float(value)) else float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(wanted) from error
    if not isinstance(value, target) or (isinstance(value, bool) and target is not bool):
        raise InputError(wanted)
    return value
