"""The Markdown pages of this repository: their code blocks, commands and links."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "paper").glob("*.md"), *ROOT.glob("examples/*.md")]
)
_FENCE = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_COMMANDS = ("polyshot", "python", "make")


class Block(NamedTuple):
    """A fenced code block and the line of the page on which its code starts."""

    language: str
    code: str
    line: int


@cache
def read(page: Path) -> str:
    return page.read_text("utf-8")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = read(page)
    return [Block(m[2], m[3], text.count("\n", 0, m.start()) + 2) for m in _FENCE.finditer(text)]


def without_blocks(page: Path) -> str:
    return _FENCE.sub("", read(page))


def links(page: Path) -> list[str]:
    """Targets of links and images; code is left out."""
    return _LINK.findall(_INLINE.sub("", without_blocks(page)))


def inline_code(page: Path) -> list[str]:
    return _INLINE.findall(without_blocks(page))


def anchors(page: Path) -> set[str]:
    """The fragments that GitHub gives to the headings of a page."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *$", without_blocks(page), re.MULTILINE):
        plain = _LINK.sub(lambda m: m[0][1 : m[0].index("]")], heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        repeated = found.count(slug)
        found.append(slug if not repeated else f"{slug}-{repeated}")
    return set(found)


def commands(page: Path) -> Iterator[list[str]]:
    """Every polyshot, python and make command of the page: in shell blocks, in indented blocks and inline."""
    shell = "\n".join(block.code for block in blocks(page) if block.language in ("", "console", "bash", "sh"))
    indented = "\n".join(line for line in without_blocks(page).splitlines() if line.startswith("    "))
    lines = f"{shell}\n{indented}".replace("\\\n", " ").splitlines()
    for line in [*lines, *inline_code(page)]:
        try:
            words = shlex.split(line.strip().removeprefix("$ "), comments=True)
        except ValueError:  # prose with an apostrophe
            continue
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # POLYSHOT_DATA=... polyshot train
            words = words[1:]
        if words and Path(words[0]).name in _COMMANDS and len(words) > 1:
            yield [Path(words[0]).name, *(word.strip("[]") for word in words[1:])]
