from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from polyshot.errors import InputError
from polyshot.methods import METHODS
from polyshot.system.settings import field_settings, keyword_settings, read_settings


class Example:
    """An example.

    Parameters
    ----------
    space : int
        No option.
    steps, reads : int
        How many.
    rate : float
        How fast. The second sentence
        goes on here.
    loss : {"mse", "softmax"}
        What to minimise.

    Attributes
    ----------
    deep : bool
        Not a parameter here.
    """

    def __init__(
        self,
        space: int,
        backbone: int | None = None,
        *,
        steps: int = 5,
        rate: float = 0.1,
        deep: bool = False,
        loss: Literal["mse", "softmax"] = "mse",
        reads: int | None = None,
        kernel: str = "cosine",
    ) -> None: ...


def test_options_are_the_keyword_arguments_of_the_constructor() -> None:
    options = keyword_settings(Example)
    assert list(options) == ["steps", "rate", "deep", "loss", "reads", "kernel"]
    assert [option.kind for option in options.values()] == ["int", "float", "bool", "mse | softmax", "int", "str"]
    assert [option.default for option in options.values()] == [5, 0.1, False, "mse", None, "cosine"]


def test_the_help_of_options_is_the_docstring_of_the_class() -> None:
    helps = {option.name: option.help for option in keyword_settings(Example).values()}
    assert helps == {
        "steps": "How many.", "rate": "How fast. The second sentence goes on here.", "deep": "",
        "loss": "What to minimise.", "reads": "How many.", "kernel": "",
    }  # fmt: skip


@dataclass
class Bounded:
    count: int = field(default=3, metadata={"help": "A count.", "at_least": 1, "at_most": 9})
    rate: float | None = field(default=None, metadata={"above": 0})


def test_fields_have_help_and_bounds() -> None:
    known = field_settings(Bounded)
    assert known["count"].help == "A count."
    assert known["count"].words == "a whole number, at least 1 and at most 9"
    assert read_settings("x", known, {"count": 9, "rate": None}) == {"count": 9, "rate": None}
    for name, value in (("count", 0), ("count", 10), ("rate", 0), ("rate", float("inf")), ("rate", float("nan"))):
        with pytest.raises(InputError, match=rf"^x: {name} must be a .*number, .*not {value}"):
            read_settings("x", known, {name: value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("steps", "12345678901234567891", 12345678901234567891),
        ("steps", 3, 3),
        ("steps", "3", 3),
        ("steps", 3.0, 3),
        ("rate", "1e-2", 0.01),
        ("rate", 1, 1.0),
        ("deep", True, True),
        ("deep", "true", True),
        ("deep", "False", False),
        ("loss", "softmax", "softmax"),
        ("reads", None, None),
        ("reads", "7", 7),
        ("kernel", "rbf", "rbf"),
    ],
)
def test_values_and_texts_become_the_type_of_the_option(name: str, value: Any, expected: Any) -> None:
    read = read_settings("example", keyword_settings(Example), {name: value}, from_text=True)[name]
    assert read == expected
    assert type(read) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", "many"),
        ("steps", 2.5),
        ("steps", True),
        ("steps", None),
        ("rate", "fast"),
        ("rate", False),
        ("deep", "maybe"),
        ("deep", 1),
        ("loss", "hinge"),
        ("loss", None),
        ("reads", "all"),
        ("kernel", 3),
    ],
)
def test_a_wrong_value_is_an_input_error_that_says_what_is_right(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"example: {name} must be .*not {value!r}"):
        read_settings("example", keyword_settings(Example), {name: value}, from_text=True)


def test_an_unknown_name_is_an_input_error_that_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="example: unknown setting 'color', 'size'; choose from steps, rate"):
        read_settings("example", keyword_settings(Example), {"size": 1, "color": 2, "steps": 3})


@pytest.mark.parametrize("method", METHODS)
def test_the_defaults_of_every_method_pass_their_own_check(method: str) -> None:
    defaults = {name: option.default for name, option in keyword_settings(METHODS[method]).items()}
    assert read_settings(method, keyword_settings(METHODS[method]), defaults) == defaults
