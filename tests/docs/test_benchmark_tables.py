"""The tables that benchmarks write into the pages: each has its place on one page."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLS = [
    (file.name, node)
    for file in sorted((ROOT / "benchmarks").glob("*.py"))
    for node in ast.walk(ast.parse(file.read_text("utf-8")))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "put_into_docs"
]
PAGES = [page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize(("file", "call"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_table_has_one_place(file: str, call: ast.Call) -> None:
    assert len(call.args) == 2, f"{file} calls put_into_docs(name, table) with other arguments"
    if isinstance(call.args[0], ast.Constant):
        start = f"<!-- {call.args[0].value} -->"
        assert sum(page.count(f"{start}\n") for page in PAGES) == 1, f"{file} writes {start}"
