"""The README's first Python block prints the numbers that the README states."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_first_block_prints_what_the_text_says() -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block[1], {})  # the README's own code
    numbers = [float(word) for word in printed.getvalue().split()]
    said = re.search(r"`(\S+) (\S+)` \(accuracy.*?`(\S+) (\S+)` \(digits", README, re.DOTALL)
    assert said is not None
    assert [f"{n:.4f}" for n in numbers[:2]] + [f"{n:.2f}" for n in numbers[2:]] == list(said.groups())
