"""kill -9 at random moments, again and again: the same call then ends with the same bits, and leaves no litter."""

import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from commands import COMMANDS, evaluate_run, live
from same import content
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.evaluation.grid import read_sweep
from processes import Processes, start_polyshot
from small_runs import SMALL

Whole = dict[str, tuple[Path, float]]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_killed_goes_on_to_the_same_bits(name: str, inputs: Path, whole: Whole, tmp_path: Path) -> None:
    rng, command, deaths = np.random.default_rng(len(name)), COMMANDS[name], 0
    expected, seconds = whole[name]
    while deaths == 0:  # once, unless the machine was much busier when the seconds were measured
        out = Path(tempfile.mkdtemp(dir=tmp_path))
        while deaths < 3 and live(command, inputs, out, seconds=seconds * rng.uniform(0.2, 0.8)) is None:
            deaths += 1
        seconds /= 2
    command(inputs, out)
    assert content(out) == content(expected)


def test_an_evaluation_killed_with_two_workers_goes_on_to_the_bits_of_one(
    inputs: Path, whole: Whole, tmp_path: Path
) -> None:
    process = Processes.Process(target=evaluate_run, args=(inputs, tmp_path, 2))
    process.start()
    while not any(tmp_path.glob("run/accuracy.part/*.safetensors")):
        assert process.is_alive()
        time.sleep(0.005)
    process.kill()
    process.join()
    evaluate_run(inputs, tmp_path)
    assert content(tmp_path) == content(whole["evaluate"][0])


GRID = """
out = "{out}"
[train]
scenario = "embeddings:{data}"
epochs = 20
{settings}
[grid]
method = ["dkt"]
[evaluate]
episodes = 20
batches = 1
queries = 3
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the jobs of a killed sweep die with it on Linux only")
def test_a_killed_sweep_goes_on_to_the_same_bits(inputs: Path, tmp_path: Path, jobs_in_this_process: None) -> None:
    import fcntl

    settings = "\n".join(f"{name} = {value}" for name, value in SMALL.items() if name != "epochs")
    for name in ("killed", "whole"):
        grid = tmp_path / f"{name}.toml"
        grid.write_text(GRID.format(out=tmp_path / name, data=inputs / "own.npz", settings=settings))
        words = ["sweep", str(grid), "--jobs", "1"]
        if name == "killed":
            process = start_polyshot(tmp_path, words, tmp_path / "printed")
            while not (tmp_path / name / "dkt" / "log.jsonl").exists():
                assert process.is_alive()
                time.sleep(0.01)
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL
            with (tmp_path / name / "dkt" / ".lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # free as soon as the job has died, too
            assert read_sweep(grid).runs[0].state == "interrupted"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    assert content(tmp_path / "killed" / "dkt") == content(tmp_path / "whole" / "dkt")
