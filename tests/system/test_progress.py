"""Progress: rate and time left of recent steps, a bar on a terminal, plain lines elsewhere, silence when asked for."""

import subprocess
import sys

import pytest

from polyshot.system import progress
from polyshot.system.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that shows what the test says."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_time_left_counts_recent_steps_and_not_compilation(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("work", 1000) as bar:
        clock[0] = 60.0  # the first step compiles for a minute
        bar.update(1)
        bar.say({"epoch": 1})
        for done in range(2, 102):
            clock[0] += 0.1
            bar.update(done)
        bar.say({"epoch": 2})
        for done in range(102, 202):  # the machine is busy: half as fast
            clock[0] += 0.2
            bar.update(done)
        bar.say({"epoch": 3, "loss": 1 / 3})
    assert capsys.readouterr().err.splitlines() == [
        "work  1/1000",
        "work  1/1000  epoch 1",
        "work  101/1000  epoch 2  90 s left",
        "work  201/1000  epoch 3  loss 0.3333  160 s left",
    ]


def test_a_slow_first_step_is_explained_before_it_begins(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("work", 10, first="(the first step compiles)"):
        assert capsys.readouterr().err == "work  0/10  (the first step compiles)\n"


def test_a_total_can_be_told_later(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("import [1]", None) as bar:
        bar.say({"found": 2})
        clock[0] = 31.0
        bar.update(1, total=2)
        clock[0] = 62.5
        bar.update(2)
    lines = ["import [1]  0/?  found 2", "import [1]  1/2", "import [1]  2/2  0.0/s  0 s left"]
    assert capsys.readouterr().err.splitlines() == lines


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("work", 3, quiet=True) as bar:
        bar.update(1, 0.5)
        bar.say({"epoch": 1})
    assert capsys.readouterr() == ("", "")


def test_there_is_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress("[red]work", 3) as bar:
        bar.update(2, 0.5)
        bar.update(3, 0.5)
        bar.say({"loss": 1 / 3})
    shown = capsys.readouterr().err
    assert "\x1b[" in shown
    assert "[red]work" in shown
    assert "3/3" in shown
    assert "loss 0.3333" in shown


def test_without_rich_a_terminal_gets_plain_lines() -> None:
    code = (
        "import sys; sys.modules['rich'] = None; sys.stderr.isatty = lambda: True\n"
        "from polyshot.system.progress import Progress\n"
        "with Progress('work', 3) as bar: bar.say({'epoch': 1})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == "work  0/3  epoch 1\n"
