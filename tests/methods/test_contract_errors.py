"""Bad input raises an InputError, whatever the method."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from every_method import build, every_method
from torch import Tensor, nn
from toy_tasks import IMAGES, VECTORS, episode

from polyshot.errors import InputError
from polyshot.methods import METHODS, build_method
from polyshot.methods.ove_gp import OVEGP
from polyshot.system.settings import keyword_settings
from polyshot.task import LabelledSet, Space
from processes import elsewhere


def broken_supports() -> Iterator[Any]:
    (x, y), _, _ = episode(VECTORS)
    yield pytest.param(x[:0], y[:0], "N > 0", id="empty")
    yield pytest.param(x, y[:-1], "labels y", id="a label short")
    yield pytest.param(x, torch.where(y == 1, 2, y), "each class", id="a class missing")
    yield pytest.param(x, y + 1, "each class", id="labels from one")
    yield pytest.param(x, y.float(), "each class", id="float labels")
    yield pytest.param(torch.where(x == x[0, 0], torch.nan, x), y, "NaN", id="NaN")


@every_method
@pytest.mark.parametrize(("x", "y", "message"), list(broken_supports()))
def test_a_broken_support_set_is_an_input_error(
    name: str, options: dict[str, Any], x: Tensor, y: Tensor, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build(name, options, VECTORS).adapt(LabelledSet(x, y), 3)


@every_method
def test_broken_queries_are_input_errors(name: str, options: dict[str, Any]) -> None:
    task = episode(VECTORS)
    predictor = build(name, options, VECTORS).adapt(task.support, task.n_way)
    for x, message in (
        (task.query.x[:, :5], "queries must be"),
        (task.query.x[0], "queries must be"),
        (task.query.x / 0, "NaN"),
        (task.query.x[:0], "no query"),
    ):
        with pytest.raises(InputError, match=message):
            predictor(x)


@every_method
def test_an_unknown_option_is_an_input_error_that_names_the_known_ones(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{name.replace('+', '.')}: unknown setting 'colour'"):
        build_method(name, VECTORS, None, {**options, "colour": "red"})


def refused_choices() -> list[tuple[str, str, bool]]:
    """For every choice among words: method, option, and whether the error for another word names it."""
    found = []
    for name, method in METHODS.items():
        for key in [key for key, option in keyword_settings(method).items() if option.choices]:
            try:
                method(Space((12,), 20), **{key: "neither"})
            except InputError as error:
                found.append((name, key, "neither" in str(error)))
            else:
                found.append((name, key, False))
    return found


def test_constructors_refuse_an_unknown_choice() -> None:
    expected = [
        (name, key, True)
        for name, method in METHODS.items()
        for key, option in keyword_settings(method).items()
        if option.choices
    ]
    assert expected
    assert elsewhere(refused_choices) == expected  # without the test run's type checks


def test_an_unknown_method_is_an_input_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown method 'protnet'; choose from feature-transfer, .*protonet"):
        build_method("protnet", VECTORS)


def test_a_subclass_may_have_fewer_options() -> None:
    class Plain(OVEGP):
        """The one-vs-each GP without options."""

        def __init__(self, space: Space, backbone: nn.Module | None = None) -> None:
            super().__init__(space, backbone, inference="gibbs", test_steps=2)

    task = episode(VECTORS)
    assert Plain(VECTORS).adapt(task.support, task.n_way)(task.query.x).log_probs.shape == (9, 3)
    assert Plain.row_title({}) == OVEGP.title


@every_method
def test_a_backbone_that_does_not_return_vectors_is_an_input_error(name: str, options: dict[str, Any]) -> None:
    if name == "relationnet":
        pytest.skip("compares maps")
    with pytest.raises(InputError, match=r"needs a backbone that returns vectors; this one returns \[1, 16, 16\]"):
        build(name, options, IMAGES, nn.Identity())
