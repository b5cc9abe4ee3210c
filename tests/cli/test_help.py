from collections.abc import Iterator

import pytest
import typer.main
from rich.text import Text
from typer.testing import CliRunner

from polyshot.cli import app


def _texts(command: typer.core.TyperCommand | typer.core.TyperGroup, name: str) -> Iterator[tuple[str, str]]:
    """Every text of help that we wrote, with its place."""
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    for child, below in getattr(command, "commands", {}).items():
        yield from _texts(below, f"{name} {child}")


def test_no_word_of_any_help_is_taken_for_markup() -> None:
    texts = dict(_texts(typer.main.get_command(app), "polyshot"))
    assert "polyshot train threads" in texts
    assert "polyshot data import path" in texts
    assert {place for place, text in texts.items() if Text.from_markup(text).plain != text} == set()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train", ["all cores", "600 for 1-shot", "16, or what the classes have left", "MAML and its kin 4"]),
        ("predict", ["cuda where there is one"]),
        ("evaluate", ["RUN/results", "the first", "others 1000", "the run's own"]),
        ("tables", ["the screen"]),
    ],
)
def test_help_shows_the_defaults(command: str, words: list[str]) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).output
    assert [word for word in words if word not in shown] == []
