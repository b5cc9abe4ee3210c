"""The documentation site builds without a warning, has no dead link, and asks no other server for anything."""

import ast
import importlib
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_pages import PAGES, ROOT, blocks

for package in ("mkdocs", "material", "mkdocstrings_handlers.python"):
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'polyshot[docs]')")

LOADED_AT_VIEW_TIME = {("script", "src"), ("img", "src"), ("link", "href")}


class Html(HTMLParser):
    """The links of a page, what it loads, and the places that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.places.add(value)
            if (tag, name) in LOADED_AT_VIEW_TIME and value:
                self.loaded.append(value)
            if name in ("href", "src") and value:
                self.links.append(value)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    out = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src")])}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return out


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Html]:
    return {path: Html(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_no_link_is_dead(site: Path, pages: dict[Path, Html]) -> None:
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(parts.fragment)
            known = target not in pages or not place or place in pages[target].places or place.startswith("__")
            if not target.is_file() or not known:
                dead.append((path.relative_to(site).as_posix(), link))
    assert dead == []


def test_nothing_is_loaded_from_another_server(pages: dict[Path, Html]) -> None:
    assert [link for page in pages.values() for link in page.loaded if urlsplit(link).netloc] == []


@pytest.mark.parametrize("module", ["encoders", "gp", "data", "methods", "evaluation", "app"])
def test_every_public_name_is_in_the_reference(module: str, pages: dict[Path, Html], site: Path) -> None:
    ends = {place.rpartition(".")[2] for place in pages[site / "reference" / f"{module}.html"].places}
    assert set(importlib.import_module(f"polyshot.{module}").__all__) - ends == set()


def test_every_name_that_a_page_imports_is_in_the_reference(pages: dict[Path, Html], site: Path) -> None:
    known = {place for path, page in pages.items() if path.parent == site / "reference" for place in page.places}
    ends = {place.rpartition(".")[2] for place in known}
    missing = set()
    for page in PAGES:
        code = "\n".join(block.code for block in blocks(page) if block.language == "python")
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("polyshot"):
                missing |= {(page.name, alias.name) for alias in node.names if alias.name not in ends}
    assert missing == set()


def test_every_command_and_key_is_in_the_reference(site: Path) -> None:
    from dataclasses import fields

    from polyshot.cli import app
    from polyshot.runs.config import TrainingConfig

    commands = (site / "reference" / "commands.html").read_text("utf-8")
    names = [command.name for command in app.registered_commands]
    assert [name for name in names if f"Usage: polyshot {name} " not in commands] == []
    keys = (site / "reference" / "configuration.html").read_text("utf-8")
    assert [field.name for field in fields(TrainingConfig) if f"<code>{field.name}</code>" not in keys] == []


def test_formulas_are_marked_for_katex(site: Path) -> None:
    assert '<span class="arithmatex">\\(' in (site / "notation.html").read_text("utf-8")
    assert (site / "assets" / "katex" / "katex.min.js").is_file()
