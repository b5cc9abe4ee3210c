"""The estimator takes from gp only its public names, and from nowhere else but system, task and errors."""

import ast
from pathlib import Path

import pytest

import polyshot.gp
from polyshot.estimator import classifier

FILES = sorted(Path(classifier.__file__).parent.glob("*.py"))
PACKAGES = ("polyshot.estimator", "polyshot.system", "polyshot.task", "polyshot.errors")


def imports(path):
    """(module, name) of every import statement of polyshot's own."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("polyshot"):
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names if alias.name.startswith("polyshot"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_estimator_imports_only_public_names(path):
    for module, name in imports(path):
        assert not name.startswith("_"), (module, name)
        if module == "polyshot.gp":
            assert name in polyshot.gp.__all__
        else:
            assert module.startswith(PACKAGES), module
