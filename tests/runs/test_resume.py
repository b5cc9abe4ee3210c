"""A run that was stopped at any moment and continued by the same command ends as one that was not."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.errors import DataError, TrainingError
from polyshot.runs import folder
from polyshot.runs import trainer as training
from polyshot.runs.config import TrainingConfig
from polyshot.runs.trainer import train
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from processes import Processes, elsewhere, start_polyshot
from small_runs import CHARACTERS, SMALL, assert_same_run, flags, log_lines, small


@pytest.mark.parametrize(
    ("method", "options"),
    [("protonet", {}), ("ove-gp", {"objective": "pl"}), ("maml", {}), ("feature-transfer", {"n_passes": 5})],
)
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(
    method: str, options: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    config = small(method, CHARACTERS, options=options, epochs=4)
    start = time.process_time()  # of the processor, which may be busy
    train(config, tmp_path / "whole", root, threads=1)
    whole_time = time.process_time() - start
    rng = np.random.default_rng(len(method))
    deaths = 0
    for life in range(4):
        process = Processes.Process(target=train, args=(config, tmp_path / "killed", root), kwargs={"threads": 1})
        process.start()
        process.join(whole_time * rng.uniform(0.05, 0.15 * (1 + life)))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        if process.exitcode == 0:
            break
        deaths += 1
    assert deaths > 0
    train(config, tmp_path / "killed", root, threads=1)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_the_command_itself_goes_on_after_a_kill(embeddings: str, tmp_path: Path) -> None:
    config = small("ove-gp", embeddings, options={"n_chains": 2, "test_steps": 2}, epochs=12)
    train(config, tmp_path / "whole", threads=1)
    out = tmp_path / "killed"
    command = ["train", *flags(config), "--threads", "1", "--out", str(out)]
    process = start_polyshot(tmp_path, command, tmp_path / "printed")
    while not (out / "last.safetensors").exists():
        time.sleep(0.001)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(log_lines(out)) < 12
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"trained: {out}\n"
    assert_same_run(out, tmp_path / "whole")


class _Stop(BaseException):
    """Nobody catches this."""


def _stop_at(monkeypatch: pytest.MonkeyPatch, event: int) -> list[str]:
    """Raise before or after the work of a run's functions, at the event of that number; what happened so far."""
    happened: list[str] = []

    def count(name: str) -> None:
        if len(happened) == event:
            raise _Stop
        happened.append(name)

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            count(f"before {function.__name__}")
            result = function(*args, **kwargs)
            count(f"after {function.__name__}")
            return result

        return call

    monkeypatch.setattr(training.Trainer, "step", wrapped(training.Trainer.step))
    monkeypatch.setattr(training, "validate", wrapped(training.validate))
    for name in ("save_checkpoint", "write_atomically", "write_sealed"):
        monkeypatch.setattr(folder, name, wrapped(getattr(folder, name)))
    return happened


def stop_at_every_place(save_seconds: float, scenario: str, folder: Path) -> list[str]:
    """Stop a run at each event in turn and continue it; returns the events."""
    sizes = {"epochs": 2, "episodes_per_epoch": 2, "validation_episodes": 1}
    config = small("ove-gp", scenario, **sizes, options={"n_chains": 2, "test_steps": 2})
    patch = pytest.MonkeyPatch()
    patch.setattr(training, "_SAVE_SECONDS", save_seconds)
    with patch.context() as inner:
        every = _stop_at(inner, -1)
        train(config, folder / "whole", quiet=True)
    for event in range(len(every)):
        out = folder / f"stopped{event}"
        with patch.context() as inner:
            happened = _stop_at(inner, event)
            with pytest.raises(_Stop):
                train(config, out, quiet=True)
        assert happened == every[:event]
        train(config, out, quiet=True)
        assert_same_run(out, folder / "whole")
    return every


@pytest.mark.parametrize("save_seconds", [0.0, 1e9])
def test_a_run_stopped_at_any_place_ends_with_the_same_bits(
    save_seconds: float, embeddings: str, tmp_path: Path
) -> None:
    every = elsewhere(stop_at_every_place, save_seconds, embeddings, tmp_path)  # type checks take half of the time
    assert {"before step", "after write_sealed", "after validate", "before write_atomically"} <= set(every)


def test_a_finished_run_is_left_as_it_is(embeddings: str, tmp_path: Path) -> None:
    config = small("ove-gp", embeddings)
    files = {p: p.read_bytes() for p in train(config, tmp_path / "x").iterdir()}
    train(config, tmp_path / "x")
    assert {p: p.read_bytes() for p in (tmp_path / "x").iterdir()} == files
    assert sorted(p.name for p in files) == [
        "best.safetensors", "config.json", "environment.json", "familiar.safetensors", "last.safetensors", "log.jsonl",
    ]  # fmt: skip


def test_an_explicit_backbone_starts_from_the_seed_alone(root: Path, tmp_path: Path) -> None:
    config = small("protonet", CHARACTERS, backbone="conv4", epochs=1)
    train(config, tmp_path / "one", root)
    torch.manual_seed(3)
    train(config, tmp_path / "other", root)
    assert_same_run(tmp_path / "one", tmp_path / "other")


def test_a_checkpoint_that_cannot_be_resumed_from_is_an_error(embeddings: str, tmp_path: Path) -> None:
    config = small("ove-gp", embeddings)
    out = train(config, tmp_path / "x")
    last = out / "last.safetensors"
    tensors, record = load_checkpoint(last)
    content = last.read_bytes()
    last.write_bytes(content[:-10])
    with pytest.raises(DataError, match=r"last\.safetensors: .*cut short"):
        train(config, out)
    save_checkpoint(last, tensors, {"epoch": 1, "run": record["run"]})
    with pytest.raises(TrainingError, match="not the state of a run; it lacks done, history"):
        train(config, out)
    save_checkpoint(last, {}, record)
    with pytest.raises(TrainingError, match=r"these do not fit: kernel\.log_cosine"):
        train(config, out)


@pytest.mark.parametrize(("change", "value"), [("seed", 1), ("epochs", 9), ("options", {"n_chains": 3})])
def test_a_folder_with_another_run_is_not_written_into(
    change: str, value: Any, embeddings: str, tmp_path: Path
) -> None:
    out = train(small("ove-gp", embeddings, epochs=1), tmp_path / "x")
    settings = {**SMALL, "epochs": 1, change: value}
    with pytest.raises(TrainingError, match=f"another configuration .*{change}"):
        train(TrainingConfig("ove-gp", embeddings, **settings), out)


def test_a_folder_with_other_files_or_a_file_is_no_place_for_a_run(embeddings: str, tmp_path: Path) -> None:
    config = small("ove-gp", embeddings)
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="is a file"):
        train(config, tmp_path / "file")
    with pytest.raises(DataError, match="cannot be written"):
        train(config, tmp_path / "file" / "x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    with pytest.raises(TrainingError, match="holds other files"):
        train(config, tmp_path / "full")
    (tmp_path / "full" / "config.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"config\.json: method and scenario must be given"):
        train(config, tmp_path / "full")
