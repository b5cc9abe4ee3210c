"""Run folders: nothing damaged, swapped or missing is believed, and every error names a way out."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import polyshot
from polyshot.cli import app
from polyshot.errors import DataError, PolyshotError, TrainingError
from polyshot.runs import trainer as training
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import RunFolder
from polyshot.runs.trainer import train
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.system.lock import locked
from polyshot.system.sealed import digest
from processes import start_polyshot
from small_runs import assert_same_run, flags, log_lines, small


@pytest.fixture(scope="module")
def config(embeddings: str) -> TrainingConfig:
    return small("ove-gp", embeddings, options={"n_chains": 2, "test_steps": 2})


@pytest.fixture(scope="module")
def finished(config: TrainingConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config, tmp_path_factory.mktemp("finished") / "run", quiet=True)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def unfinished(config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was stopped after its second epoch."""
    finish = training._finish_epoch

    def stop(trainer: Any, *arguments: Any) -> None:
        finish(trainer, *arguments)
        if len(trainer.history) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "_finish_epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "unfinished", quiet=True)
    return tmp_path / "unfinished"


def read_everything(run: Path) -> None:
    folder = RunFolder(run)
    _ = folder.config, folder.space, folder.environment, folder.history
    folder.load_method()
    folder.resume()


def as_first_edition(run: Path) -> Path:
    """Take away what the second edition added."""
    for name in ("config.json", "environment.json"):
        content = json.loads((run / name).read_text())
        del content["sha256"]
        (run / name).write_text(json.dumps(content, indent=2))
    (run / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log_lines(run)))
    (run / "familiar.safetensors").unlink(missing_ok=True)
    for path in run.glob("*.safetensors"):
        tensors, record = load_checkpoint(path)
        del record["run"]
        save_checkpoint(path, tensors, record)
    return run


def parsed(line: str) -> Any:
    """The values of a line of JSON."""
    try:
        return json.loads(line)
    except ValueError:
        return line


@pytest.mark.parametrize("name", ["config.json", "environment.json", "log.jsonl"])
def test_every_changed_digit_is_found(name: str, run: Path) -> None:
    content = (run / name).read_text()
    digits = [place for place, character in enumerate(content) if character.isdecimal()]
    assert len(digits) > 20
    for place in digits:
        other = content[:place] + str((int(content[place]) + 1) % 10) + content[place + 1 :]
        if [*map(parsed, other.splitlines())] == [*map(parsed, content.splitlines())]:
            continue  # such as the last of 17 digits
        (run / name).write_text(other)
        with pytest.raises(PolyshotError, match=rf"{name}|configuration"):
            read_everything(run)


@pytest.mark.parametrize("name", ["config.json", "environment.json", "log.jsonl"])
def test_a_removed_checksum_is_found(name: str, run: Path) -> None:
    lines = (run / name).read_text().splitlines()
    if name == "log.jsonl":
        lines = [json.dumps({k: v for k, v in json.loads(line).items() if k != "check"}) for line in lines]
        (run / name).write_text("\n".join(lines) + "\n")
    else:
        content = json.loads((run / name).read_text())
        del content["sha256"]
        (run / name).write_text(json.dumps(content | ({"seed": 1} if name == "config.json" else {})))
    with pytest.raises(PolyshotError, match=r"checksum|another configuration"):
        read_everything(run)


def test_a_lost_line_of_the_log_is_found_and_training_restores_it(run: Path, config: TrainingConfig) -> None:
    log = run / "log.jsonl"
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    log.write_bytes(b"".join(lines[1:]))
    with pytest.raises(TrainingError, match=r"line 1 does not match its checksum.*`polyshot train --out .*restores it"):
        _ = RunFolder(run).history
    for damage in (lines[1:], lines[:-1], [b"{"], [b"[" * 10**5], [b"\xff"], []):
        log.write_bytes(b"".join(damage))
        train(config, run, quiet=True)
        assert log.read_bytes() == whole
    log.unlink()
    assert not RunFolder(run).finished
    result = CliRunner().invoke(app, ["train", "--out", str(run)])  # all settings come from the run
    assert result.exit_code == 0, result.output
    assert log.read_bytes() == whole


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors"])
@pytest.mark.parametrize(("change", "value"), [("seed", 1), ("options", {"n_chains": 2, "test_steps": 3})])
def test_checkpoints_of_another_run_are_refused(
    name: str, change: str, value: Any, run: Path, embeddings: str, config: TrainingConfig, tmp_path: Path
) -> None:
    settings = {"options": {"n_chains": 2, "test_steps": 2}, change: value}
    other = train(small("ove-gp", embeddings, **settings), tmp_path / "other", quiet=True)
    shutil.copy(other / name, run / name)
    with pytest.raises(
        TrainingError, match=rf"{name}: belongs to a run with another configuration.*train from scratch"
    ):
        train(config, run, quiet=True)
    if name == "best.safetensors":
        with pytest.raises(TrainingError, match="belongs to a run with another configuration"):
            polyshot.load(run)


def test_an_unfinished_run_without_its_state_is_not_started_again(unfinished: Path, config: TrainingConfig) -> None:
    (unfinished / "last.safetensors").unlink()
    before = {path.name: path.read_bytes() for path in unfinished.iterdir()}
    with pytest.raises(TrainingError, match=r"last\.safetensors is missing, .*cannot be resumed; .* from scratch"):
        train(config, unfinished, quiet=True)
    assert {path.name: path.read_bytes() for path in unfinished.iterdir()} == before


def test_a_finished_run_needs_no_state(run: Path, config: TrainingConfig) -> None:
    (run / "last.safetensors").unlink()
    assert train(config, run, quiet=True) == run
    assert not (run / "last.safetensors").exists()
    assert polyshot.load(run).best["epoch"] >= 1


def test_a_run_without_its_best_weights_names_the_way_out(run: Path, unfinished: Path, config: TrainingConfig) -> None:
    for folder in (run, unfinished):
        (folder / "best.safetensors").unlink()
        message = r"no best\.safetensors: .*restore it from a copy, or delete the folder and train from scratch"
        with pytest.raises(TrainingError, match=message):
            train(config, folder, quiet=True)
        with pytest.raises(TrainingError, match=message):
            polyshot.load(folder)


def test_a_run_without_its_configuration_is_not_overwritten(run: Path, config: TrainingConfig) -> None:
    (run / "config.json").unlink()
    with pytest.raises(TrainingError, match=r"config\.json of this run is missing; restore it"):
        train(config, run, quiet=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("null", "not a JSON object"),
        ('"config"', "not a JSON object"),
        ("[]", "not a JSON object"),
        ("{", "not a JSON file"),
        ("[" * 10**5, "not a JSON file"),
        ('{"method": ' * 9 * 10**4, "not a JSON file"),
        (" " * 2**21, "larger than"),
        ("{}", "method and scenario must be given"),
    ],
)
def test_a_config_that_is_no_configuration_is_an_error(content: str, message: str, run: Path) -> None:
    (run / "config.json").write_text(content)
    with pytest.raises(PolyshotError, match=rf"config\.json: .*{message}"):
        polyshot.load(run)


@pytest.mark.parametrize(
    "space",
    [
        None,
        "8",
        [],
        {},
        {"shape": [], "n_classes": 5},
        {"shape": [8], "n_classes": 0},
        {"shape": [8], "n_classes": 10**12},
        {"shape": [10**12], "n_classes": 5},
        {"shape": [3, 10**6, 10**6], "n_classes": 5},
        {"shape": [8, 8], "n_classes": 5},
        {"shape": [True], "n_classes": 5},
        {"shape": [-8], "n_classes": 5},
        {"shape": 8, "n_classes": 5},
    ],
)
def test_an_absurd_space_is_an_error_before_anything_is_allocated(space: Any, run: Path) -> None:
    content = json.loads((run / "config.json").read_text())
    del content["sha256"]
    (run / "config.json").write_text(json.dumps(content | {"space": space}))
    with pytest.raises(TrainingError, match=r"config\.json: damaged: space must have"):
        polyshot.load(run)


@pytest.mark.parametrize("setting", ["shots", "ways", "epochs", "validation_episodes", "seed"])
def test_absurd_settings_are_errors(setting: str, run: Path) -> None:
    content = json.loads((run / "config.json").read_text())
    del content["sha256"]
    (run / "config.json").write_text(json.dumps(content | {setting: 10**30}))
    with pytest.raises(TrainingError, match=rf"config\.json: {setting} must be a whole number, at least .* at most"):
        polyshot.load(run)


def test_a_folder_of_the_first_edition_opens_and_resumes(
    unfinished: Path, run: Path, finished: Path, config: TrainingConfig
) -> None:
    old = as_first_edition(run)
    assert RunFolder(old).finished
    assert polyshot.load(old).best == polyshot.load(finished).best
    read_everything(old)
    train(config, as_first_edition(unfinished), quiet=True)
    assert_same_run(unfinished, finished)


def test_a_second_process_in_the_folder_is_told_of_the_first(run: Path, config: TrainingConfig) -> None:
    (run / ".lock").write_text("process 1 on another machine")  # of a killed process: it locks nothing
    train(config, run, quiet=True)
    assert not (run / ".lock").exists()
    with locked(run / ".lock"):
        with pytest.raises(TrainingError, match=f"run: process {os.getpid()} on .* is using this folder; wait"):
            train(config, run, quiet=True)
        assert polyshot.load(run).config.method == "ove-gp"  # reading needs no lock
    train(config, run, quiet=True)


def test_temporary_files_of_killed_writers_are_removed(run: Path, config: TrainingConfig) -> None:
    names = [".last.safetensors.x8d2k.part", ".log.jsonl.abc.part", ".best.safetensors.4711"]
    for name in [*names, ".mine"]:
        (run / name).write_text("half")
    train(config, run, quiet=True)
    assert sorted(path.name for path in run.iterdir() if path.name.startswith(".")) == [".mine"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to handle")
def test_sigterm_saves_says_so_and_the_run_ends_with_the_same_bits(embeddings: str, tmp_path: Path) -> None:
    few: dict[str, Any] = {"options": {"n_chains": 2, "test_steps": 2}, "validation_episodes": 1}
    config = small("ove-gp", embeddings, epochs=300, **few)
    out = tmp_path / "run"
    words = ["train", *flags(config), "--threads", "1", "--out", str(out)]
    process = start_polyshot(tmp_path, words, tmp_path / "printed")
    while len(log_lines(out)) < 2:
        assert process.is_alive()
        time.sleep(0.01)
    process.terminate()  # SIGTERM
    process.join(120)
    assert process.exitcode == 143
    assert f"terminated; saved in {out}, the same command resumes" in (tmp_path / "printed").read_text("utf-8")
    record = RunFolder(out).resume().record
    assert 8 <= record["done"] < 1200
    short = tmp_path / "short"
    train(small("ove-gp", embeddings, epochs=record["done"] // 4, **few), short, threads=1, quiet=True)
    history = [{**entry, "seconds": 0, "processor_seconds": 0} for entry in record["history"]]
    assert history == [{**entry, "seconds": 0, "processor_seconds": 0} for entry in log_lines(short)][: len(history)]


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2, 3.5]}) == digest({"b": [2, 3.5], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_a_folder_that_cannot_be_written_is_an_error(config: TrainingConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        train(config, tmp_path / "file" / "run", quiet=True)
