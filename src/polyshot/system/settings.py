"""Settings: names, types, defaults and help, taken from where they are declared, and values checked against them.

A method's options are the keyword-only arguments of its constructor; a configuration's settings are the fields of its
dataclass, with their help in `metadata={"help": ...}`. Both are read by the same function.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from polyshot.errors import InputError

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict: "a table",
    list: "a list",
}


@dataclass(frozen=True)
class Setting:
    """One setting; `choices` where its values are named, `optional` where None is one of them."""

    name: str
    type: type
    choices: tuple[str, ...]
    optional: bool
    default: Any
    help: str = ""

    @property
    def kind(self) -> str:
        """For help texts, such as "float" or "ml | pl"."""
        return " | ".join(self.choices) or self.type.__name__

    @property
    def words(self) -> str:
        """For error messages, such as "a whole number" or "ml or pl"."""
        return " or ".join(self.choices) or _WORDS.get(self.type, self.type.__name__)


def keyword_settings(kind: type) -> dict[str, Setting]:
    """The keyword-only arguments of a class's constructor."""
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    return {
        name: _setting(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def field_settings(kind: type) -> dict[str, Setting]:
    """The fields of a dataclass; `default` is `dataclasses.MISSING` where a value must be given."""
    hints = get_type_hints(kind)
    return {
        field.name: _setting(
            field.name,
            hints[field.name],
            field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
            field.metadata.get("help", ""),
        )
        for field in dataclasses.fields(kind)
    }


def read_settings(
    where: str, known: Mapping[str, Setting], values: Mapping[str, Any], *, from_text: bool = False
) -> dict[str, Any]:
    """The values in the types of their settings; an unknown name or a wrong value is an InputError.

    `from_text` also takes numbers and truth values as text, as a command line has them.
    """
    if unknown := sorted(set(values) - set(known)):
        names = ", ".join(repr(name) for name in unknown)
        raise InputError(
            f"{where}: unknown setting {names}; choose from {', '.join(known) or 'none: it has no settings'}"
        )
    return {name: _read(where, known[name], value, from_text) for name, value in values.items()}


def check_choices(where: str, kind: type, **values: str) -> None:
    """InputError unless each value is one of the choices of the constructor's argument of that name."""
    known = keyword_settings(kind)
    read_settings(where, known, {name: value for name, value in values.items() if name in known})


def _setting(name: str, hint: Any, default: Any, help: str = "") -> Setting:
    if get_origin(hint) is Literal:
        return Setting(name, str, get_args(hint), False, default, help)
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    plain = next(kind for kind in kinds if kind is not NoneType)
    return Setting(name, get_origin(plain) or plain, (), NoneType in kinds, default, help)


def _read(where: str, setting: Setting, value: Any, from_text: bool) -> Any:
    wrong = InputError(f"{where}: {setting.name} must be {setting.words}, not {value!r}")
    if value is None and setting.optional:
        return None
    if setting.choices:
        if value not in setting.choices:
            raise wrong
        return value
    if from_text and isinstance(value, str):
        value = _from_text(setting.type, value)
    if setting.type is float and type(value) is int:
        return float(value)
    if setting.type is int and type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not setting.type:
        raise wrong
    return value


def _from_text(kind: type, text: str) -> Any:
    """The number or truth value that the text stands for; the text itself where it stands for none."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind in (int, float):
        try:
            return float(text)
        except ValueError:
            return text
    return text
