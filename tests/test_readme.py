"""The README's Python blocks print what the README shows below them, and its commands are found."""

import pytest

from readme_doors import README, SHOWN, commands, printed


def test_every_block_shows_its_output() -> None:
    assert len(SHOWN) == README.count("```python") == 2


@pytest.mark.parametrize(("code", "shown"), SHOWN, ids=["sentences", "embeddings"])
def test_a_block_prints_what_is_shown(code: str, shown: str) -> None:
    if "TextEncoder" in code:
        pytest.importorskip("wordllama", reason="wordllama is not installed (docs/encoders.md)")
    assert printed(code) == shown


def test_each_door_has_commands() -> None:
    """tests/readme_doors.py runs them; `make release-check` does so with the wheel."""
    assert {"classify", "train", "evaluate", "report"} <= {words[0] for words in commands()}
