"""Every command that a page shows exists and has the options that the page gives it."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import typer.main
from markdown_pages import PAGES, ROOT, commands, name_of

from paper.figures import app as figures
from polyshot.cli import app as polyshot
from polyshot.cli import load_command

TARGETS = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


Command: TypeAlias = typer.core.TyperGroup | typer.core.TyperCommand


def unknown_words(command: Command, words: list[str], load: Callable[[str], Command] | None = None) -> list[str]:
    """Sub-commands and options that the command does not have; `load` is for sub-commands that are loaded on use."""
    takes_value = {
        opt: not getattr(p, "is_flag", False) for p in command.params for opt in (*p.opts, *p.secondary_opts)
    }
    takes_value["--help"] = False
    children = getattr(command, "commands", None)
    wrong, k = [], 0
    while k < len(words):
        word = words[k].partition("=")[0]
        if word.startswith("-") and word not in takes_value:
            wrong.append(word)
        elif children is not None and not word.startswith("-"):
            if word not in children:
                return [*wrong, word]
            return wrong + unknown_words(load(word) if load else children[word], words[k + 1 :])
        k += 2 if takes_value.get(word) and "=" not in words[k] else 1
    return wrong


def problems(words: list[str]) -> list[str]:
    """What is wrong with a command line."""
    program, *rest = words
    if program == "polyshot":
        return unknown_words(typer.main.get_command(polyshot), rest, load_command)
    if program == "make":
        return [word for word in rest if word not in TARGETS and "=" not in word]
    if rest[:2] == ["-m", "paper.figures"]:
        return unknown_words(typer.main.get_command(figures), rest[2:])
    if rest[0] == "-m":
        return [] if importlib.util.find_spec(rest[1]) else [rest[1]]
    return [] if rest[0].startswith("-") or (ROOT / rest[0]).is_file() else [rest[0]]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    assert [(words, wrong) for words in commands(page) if (wrong := problems(words))] == []


def test_wrong_commands_are_found() -> None:
    assert problems(["polyshot", "train", "--scenario", "glyphs", "--oops", "1"]) == ["--oops"]
    assert problems(["polyshot", "figures", "iris"]) == ["figures"]
    assert problems(["polyshot", "data", "lst"]) == ["lst"]
    assert problems(["python", "-m", "paper.figures", "iris", "--split", "2"]) == ["--split"]
    assert problems(["python", "-m", "benchmarks.none"]) == ["benchmarks.none"]
    assert problems(["python", "results/none.py"]) == ["results/none.py"]
    assert problems(["make", "coffee"]) == ["coffee"]
