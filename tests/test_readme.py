"""The README's Python blocks print what the README shows below them."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
SHOWN = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)


def test_every_block_shows_its_output() -> None:
    assert len(SHOWN) == README.count("```python") == 2


@pytest.mark.parametrize(("code", "shown"), SHOWN, ids=["sentences", "embeddings"])
def test_a_block_prints_what_is_shown(code: str, shown: str) -> None:
    if "TextEncoder" in code:
        pytest.importorskip("wordllama", reason="wordllama is not installed (docs/encoders.md)")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})  # the README's own code
    assert printed.getvalue() == shown
