"""Typed settings: read names, types, defaults, bounds and help from a declaration, and check values against it.

A method's options are the keyword-only arguments of its constructor; their help is the "Parameters" section of the
class's numpydoc docstring. The settings of a configuration are the fields of a dataclass; `metadata` adds what a type
cannot say:

    shots: int = field(default=5, metadata={"help": "Support examples per class.", "at_least": 1})
"""

import dataclasses
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from polyshot.errors import InputError

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a table",
    list: "a list",
}


@dataclass(frozen=True)
class Setting:
    """One setting.

    `choices` lists the allowed names, if they are fixed. `optional` allows None. A number must be finite and
    within `at_least`, `above` and `at_most`, where they are given. `item` is the type of what a list holds, if fixed.
    """

    name: str
    type: type
    choices: tuple[str, ...]
    optional: bool
    default: Any
    help: str = ""
    at_least: int | float | None = None
    above: int | float | None = None
    at_most: int | float | None = None
    item: Any = None

    @property
    def kind(self) -> str:
        """For help texts, such as "float" or "ml | pl"."""
        return " | ".join(self.choices) or self.type.__name__

    @property
    def words(self) -> str:
        """For error messages, such as "ml or pl" or "a whole number, at least 1"."""
        bounds = {"at least": self.at_least, "above": self.above, "at most": self.at_most}
        limits = " and ".join(f"{words} {bound}" for words, bound in bounds.items() if bound is not None)
        word = _WORDS.get(self.type, self.type.__name__) + (f" of {_WORDS[self.item]}" if self.item else "")
        return ", ".join(filter(None, [" or ".join(self.choices) or word, limits]))

    def allows(self, value: Any) -> bool:
        """Whether a value of the right type is within the bounds, and a list holds what it should."""
        if self.item:
            return all(type(item) is self.item for item in value)
        if (self.at_least, self.above, self.at_most) == (None, None, None):
            return True
        return bool(
            (type(value) is int or math.isfinite(value))
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
        )


def keyword_settings(kind: type) -> dict[str, Setting]:
    """The keyword-only arguments of a class's constructor."""
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    helps = _documented_parameters(inspect.getdoc(kind) or "")
    return {
        name: _setting(name, hints[name], parameter.default, help=helps.get(name, ""))
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
            **field.metadata,
        )
        for field in dataclasses.fields(kind)
    }


def read_settings(
    where: str, known: Mapping[str, Setting], values: Mapping[str, Any], *, from_text: bool = False
) -> dict[str, Any]:
    """Return the values in the types of their settings; raise InputError for an unknown name or a wrong value.

    `where`, unless empty, opens the error message. `from_text` also reads numbers, true and false from text, as they
    are typed on a command line.
    """
    where = f"{where}: " if where else ""
    if unknown := sorted(set(values) - set(known)):
        names = ", ".join(repr(name) for name in unknown)
        raise InputError(
            f"{where}unknown setting {names}; choose from {', '.join(known) or 'none: it has no settings'}"
        )
    return {name: _read(where, known[name], value, from_text) for name, value in values.items()}


def check_choices(where: str, kind: type, **values: str) -> None:
    """Raise InputError unless each value is one of the choices of the constructor's argument of that name."""
    known = keyword_settings(kind)
    read_settings(where, known, {name: value for name, value in values.items() if name in known})


def _documented_parameters(docstring: str) -> dict[str, str]:
    """Return what the "Parameters" section of a numpydoc docstring says about each name."""
    section = docstring.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^(\w[\w, ]*?) : .*\n((?:    .*\n?)*)", section + "\n", re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def _setting(name: str, hint: Any, default: Any, **about: Any) -> Setting:
    if get_origin(hint) is Literal:
        return Setting(name, str, get_args(hint), False, default, **about)
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    plain = next(kind for kind in kinds if kind is not NoneType)
    item = next((kind for kind in get_args(plain) if get_origin(plain) is list and kind is not Any), None)
    return Setting(name, get_origin(plain) or plain, (), NoneType in kinds, default, item=item, **about)


def _read(where: str, setting: Setting, value: Any, from_text: bool) -> Any:
    wrong = InputError(f"{where}{setting.name} must be {setting.words}, not {value!r}")
    if value is None and setting.optional:
        return None
    if setting.choices:
        if value not in setting.choices:
            raise wrong
        return value
    if from_text and isinstance(value, str):
        value = _from_text(setting.type, value)
    if setting.type is float and type(value) is int and abs(value) < 2**1000:
        value = float(value)
    elif setting.type is int and type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not setting.type or not setting.allows(value):
        raise wrong
    return value


def _from_text(kind: type, text: str) -> Any:
    """Return the number, True or False that the text spells, or else the text itself."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind in (int, float):
        try:
            return float(text) if kind is float or not text.strip().lstrip("+-").isdecimal() else int(text)
        except ValueError:
            return text
    return text
