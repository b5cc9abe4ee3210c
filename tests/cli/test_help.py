"""What `polyshot` says about itself, and that it says it quickly."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import polyshot
from polyshot.cli import _COMMANDS, app, load_command

_HEAVY = ("torch", "numpy", "rich", "numba", "sklearn", "PIL")


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", [*_COMMANDS, "data import", "data sheet"])
def test_no_option_name_is_cut_at_80_columns(command: str) -> None:
    name, *below = command.split()
    node = load_command(name)
    for part in below:
        node = node.commands[part]
    text = shown(*command.split(), "--help")
    options = [name for parameter in node.params for name in parameter.opts if name.startswith("--")]
    assert [option for option in options if f"{option} " not in text] == []
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train", ["all cores", "600 for 1-shot", "16, or as many as the smallest class has left", "Default: 0.001"]),
        ("predict", ["cuda if there is one"]),
        ("evaluate", ["RUN/results", "the first", "else 1000", "the run's own"]),
        ("tables", ["print the tables"]),
    ],
)
def test_help_shows_the_defaults(command: str, words: list[str]) -> None:
    text = " ".join(shown(command, "--help").split())
    assert [word for word in words if word not in text] == []


def test_help_names_every_choice() -> None:
    """The names stand there in words, because the rooms that know them load torch."""
    from polyshot.data import CORRUPTIONS
    from polyshot.evaluation.protocols import PROTOCOLS
    from polyshot.report.tables_text import FORMATS

    evaluate, tables = shown("evaluate", "--help"), shown("tables", "--help")
    assert [name for name in (*PROTOCOLS, *CORRUPTIONS) if name not in evaluate] == []
    assert [name for name in FORMATS if name not in tables] == []


def test_the_version_is_printed() -> None:
    assert shown("--version") == f"polyshot {polyshot.__version__}\n"


def test_a_misspelt_command_is_told_the_right_one() -> None:
    result = CliRunner().invoke(app, ["trian"])
    assert result.exit_code == 2
    assert "No such command 'trian'. Did you mean 'train'" in result.output


def loaded_by(arguments: list[str], **environment: str) -> tuple[list[str], str]:
    """Run the command in a fresh interpreter: which heavy packages it loaded, and its output."""
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('LOADED', *[m for m in {_HEAVY!r} if m in sys.modules]))\n"
        f"sys.argv = ['polyshot', *{arguments!r}]\n"
        "from polyshot.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    output, _, loaded = done.stdout.partition("LOADED")
    return loaded.split(), output


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in _COMMANDS)], ids=" ".join
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    loaded, output = loaded_by(arguments)
    assert loaded == []
    assert "polyshot" in output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("polyshot tr", "train"),
        ("polyshot train --epi", "--episodes-per-epoch"),
        ("polyshot evaluate --sev", "--severity"),
    ],
)
def test_completion_loads_nothing_heavy(words: str, expected: str) -> None:
    settings = {"_POLYSHOT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    loaded, output = loaded_by([], **settings)
    assert expected in output
    assert loaded == []
