"""A full disk, a folder that cannot be written, and two processes in one folder: a message, and no lost work."""

import errno
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import COMMANDS, evaluate_run
from same import content
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.errors import DataError, PolyshotError, TrainingError
from polyshot.system.lock import locked
from processes import Processes

LOCKS = {"train": ".lock", "evaluate": "run/.lock", "data import": ".farm.npz.lock", "classify": ".answers.csv.lock"}
Whole = dict[str, tuple[Path, float]]


def starved(command, inputs: Path, out: Path, most: int, pipe) -> None:
    """Run a command that can write no file of more than `most` bytes, and send the error that it ends with."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    try:
        command(inputs, out)
    except PolyshotError as error:
        pipe.send(str(error))
    except BaseException as error:
        pipe.send(repr(error))
    else:
        pipe.send("nothing was wrong")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no file sizes")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_full_ends_in_a_message_and_later_in_the_same_bits(
    name: str, inputs: Path, whole: Whole, tmp_path: Path
) -> None:
    expected = whole[name][0]
    largest = max(file.stat().st_size for file in expected.rglob("*") if file.is_file())
    for most in (0, largest // 2):  # half, because the times in a file make it a few bytes longer or shorter
        ours, theirs = Processes.Pipe()
        process = Processes.Process(target=starved, args=(COMMANDS[name], inputs, tmp_path, most, theirs))
        process.start()
        assert "cannot be written (File too large)" in ours.recv()
        process.join()
    COMMANDS[name](inputs, tmp_path)
    assert content(tmp_path) == content(expected)


def test_a_disk_without_space_for_what_workers_read_is_an_error(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DataError, match=r"examples\.npy: cannot be written \(No space left on device\)"):
        evaluate_run(inputs, tmp_path, workers=2)
    assert not list(tmp_path.rglob("*.npy*"))


@pytest.mark.skipif(sys.platform != "linux", reason="/sys is Linux's, where not even root can make a folder")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_place_where_nothing_can_be_written_is_an_error(name: str, inputs: Path) -> None:
    with pytest.raises(PolyshotError, match=r"/sys/.*cannot be (written|replaced)"):
        COMMANDS[name](inputs, Path("/sys/polyshot"))


@pytest.mark.parametrize("words", [["tables"], ["report"]])
def test_tables_and_report_say_that_they_cannot_be_written(words: list[str], whole: Whole, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, [*words, str(whole["evaluate"][0]), "--out", str(tmp_path / "file" / "x")])
    assert result.exit_code == 1, result.output
    assert "cannot be written" in result.stderr


@pytest.mark.parametrize("name", LOCKS)
def test_a_second_process_is_told_of_the_first(name: str, inputs: Path, whole: Whole, tmp_path: Path) -> None:
    lock = tmp_path / LOCKS[name]
    with locked(lock), pytest.raises(PolyshotError, match=f"process {os.getpid()} on .* is using this folder; wait"):
        COMMANDS[name](inputs, tmp_path)
    COMMANDS[name](inputs, tmp_path)
    assert content(tmp_path) == content(whole[name][0])


def test_a_lock_of_a_process_that_died_locks_nothing(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.write_text("process 1 on another machine")
    with locked(lock), pytest.raises(TrainingError, match="is using this folder"), locked(lock):
        pass
    assert not lock.exists()
