"""The README's first code block, which prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_first_block_is_six_lines_and_prints_what_the_text_says() -> None:
    block = re.search(r"```(\w*)\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert block[1] == "python"
    assert len([line for line in block[2].splitlines() if line]) == 6
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block[2], {})  # the README's own code
    numbers = [float(word) for word in printed.getvalue().split()]
    said = re.search(r"`(\S+) (\S+)` \(accuracy.*?`(\S+) (\S+)` \(digits", README, re.DOTALL)
    assert said is not None
    assert [f"{n:.4f}" for n in numbers[:2]] + [f"{n:.2f}" for n in numbers[2:]] == list(said.groups())
