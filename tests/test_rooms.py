"""Rules of the rooms that import-linter cannot say; the layers themselves are contracts in pyproject.toml."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from polyshot import gp
from polyshot.data import DATASETS, SCENARIOS
from polyshot.gp import KERNELS
from polyshot.methods import METHODS
from polyshot.task import Kind

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "polyshot").rglob("*.py"))
MOST_LINES = 300


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def imports(file: Path) -> Iterator[tuple[str, str]]:
    """Every (module, name) that a file imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


@pytest.mark.parametrize("file", [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))], ids=name_of)
def test_files_are_short(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) <= MOST_LINES, "two files with clear names read better"


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_no_underscore_name_crosses_a_module(file: Path) -> None:
    private = [
        f"{module}.{name}"
        for module, name in imports(file)
        if module.startswith("polyshot")
        and any(p.startswith("_") and not p.startswith("__") for p in (name, *module.split(".")))
    ]
    assert not private


@pytest.mark.parametrize("file", [f for f in SOURCES if "estimator" in f.parts], ids=name_of)
def test_the_estimator_takes_only_the_public_names_of_gp(file: Path) -> None:
    taken = [(module, name) for module, name in imports(file) if module.startswith("polyshot.gp")]
    assert [pair for pair in taken if pair[0] != "polyshot.gp" or pair[1] not in gp.__all__] == []


@pytest.mark.parametrize("file", [f for f in SOURCES if "gp" in f.parts], ids=name_of)
def test_the_mathematics_knows_no_files(file: Path) -> None:
    assert not {module for module, _ in imports(file)} & {"pathlib", "os.path", "io", "shutil", "tempfile"}


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_a_registered_name_is_looked_up_and_never_compared_with(file: Path) -> None:
    # names of likelihoods are ordinary words, and so are options of methods; "embeddings" is a kind of example too
    registered = {*METHODS, *DATASETS, *SCENARIOS, *KERNELS} - {*get_args(Kind)}
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Compare) and any(
            isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops
        ):
            parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
            texts = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            assert not texts & registered, f"line {node.lineno} compares with {', '.join(texts & registered)}"


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("polyshot", {"torch", "numpy", "sklearn", "typer"}),
        (
            "polyshot.gp",
            {
                "polyshot.methods",
                "polyshot.estimator",
                "polyshot.data",
                "polyshot.runs",
                "polyshot.evaluation",
                "polyshot.report",
                "polyshot.cli",
                "typer",
                "rich",
                "PIL",
                "matplotlib",
                "sklearn",
            },
        ),
        (
            "polyshot.estimator",
            {"polyshot.methods", "polyshot.data", "polyshot.runs", "polyshot.cli", "typer", "PIL"},
        ),
    ],
)
def test_importing_a_room_loads_no_other(module: str, heavy: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & heavy
