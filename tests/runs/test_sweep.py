"""A grid of small runs: planned, run, interrupted, resumed and reported, here and through submitit."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.errors import InputError
from polyshot.evaluation.grid import read_sweep
from polyshot.runs.folder import RunFolder
from polyshot.runs.trainer import train
from small_runs import SMALL, assert_same_run, small, write_embeddings

EVALUATE = "[evaluate]\nepisodes = 2\nbatches = 1\nqueries = 3\n"


@pytest.fixture
def data(tmp_path: Path) -> str:
    return f"embeddings:{write_embeddings(tmp_path / 'small.npz')}"


def write_grid(path: Path, data: str, rest: str, **settings: object) -> Path:
    common = "\n".join(f"{name} = {value}" for name, value in {**SMALL, **settings}.items())
    path.write_text(f'out = "{path.parent / "out"}"\n[train]\nscenario = "{data}"\n{common}\n{rest}', "utf-8")
    return path


def test_every_combination_is_a_run_named_by_what_differs(tmp_path: Path, data: str) -> None:
    rest = '[grid]\nmethod = ["dkt", "protonet"]\nseed = [0, 1]\nlearning_rate = [0.01]\n'
    rest += '[[run]]\nname = "one"\nmethod = "dkt"\n'
    runs = read_sweep(write_grid(tmp_path / "grid.toml", data, rest)).runs
    assert [run.name for run in runs] == ["dkt-seed-0", "dkt-seed-1", "protonet-seed-0", "protonet-seed-1", "one"]
    assert [(run.config.seed, run.config.learning_rate) for run in runs[1::3]] == [(1, 0.01), (0, 0.001)]
    assert {run.state for run in runs} == {"new"}


def test_a_folder_has_one_run_per_file(tmp_path: Path, data: str) -> None:
    for name in ("a", "b/c"):
        file = tmp_path / "runs" / f"{name}.toml"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(f'method = "dkt"\nscenario = "{data}"\n', "utf-8")
    assert [run.name for run in read_sweep(tmp_path / "runs", tmp_path / "out").runs] == ["a", "b/c"]
    with pytest.raises(InputError, match="name one with --out"):
        read_sweep(tmp_path / "runs")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "no runs; give"),
        ("[grid]\nmethod = []\n", r"\[grid\] method must be a list"),
        ('[grid]\nmethod = ["dkt", "dkt"]\n', "two runs are called dkt"),
        ('[grid]\nmethod = ["dkt"]\nshot = [1]\n', "run dkt: unknown setting shot"),
        ('[grid]\nmethod = ["none"]\n', "unknown method 'none'"),
        ('[[run]]\nmethod = "dkt"\nscenario = "none"\n', "unknown scenario 'none'"),
        ('[[run]]\nmethod = "dkt"\nname = "../x"\n', "cannot be the name of a run"),
        ('[[run]]\nmethod = "dkt"\n[evaluate]\nepisode = 3\n', r"\[evaluate\]: unknown setting 'episode'"),
        ('[[run]]\nmethod = "dkt"\n[evaluate]\nprotocols = ["speed"]\n', "unknown protocol 'speed'"),
        ('[[run]]\nmethod = "dkt"\n[[evaluate]]\n[[evaluate]]\nshots = 2\n', "write the same accuracy.json"),
        ('[[run]]\nmethod = "dkt"\n[slrm]\nx = 1\n', "unknown setting 'slrm'"),
    ],
)
def test_what_is_wrong_is_found_before_anything_starts(tmp_path: Path, data: str, rest: str, message: str) -> None:
    with pytest.raises(InputError, match=f"grid.toml.*{message}"):
        read_sweep(write_grid(tmp_path / "grid.toml", data, rest))


def test_a_local_sweep_resumes_skips_and_reports(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = write_grid(tmp_path / "grid.toml", data, '[grid]\nmethod = ["dkt"]\n' + EVALUATE)
    with grid.open("a", encoding="utf-8") as file:
        file.write('[[run]]\nname = "missing"\nmethod = "dkt"\nscenario = "embeddings:none.npz"\n')
    whole = train(small("dkt", data), tmp_path / "whole", threads=1)
    out = tmp_path / "out" / "dkt"
    with monkeypatch.context() as patch:  # interrupted after the first of three epochs
        patch.setattr("polyshot.runs.trainer.validate", interrupted_at(2))
        with pytest.raises(KeyboardInterrupt):
            train(small("dkt", data), out, threads=1)
    assert [run.state for run in read_sweep(grid).runs] == ["interrupted", "new"]
    done = CliRunner().invoke(app, ["sweep", str(grid), "--jobs", "1"])
    assert done.exit_code == 1
    assert "dkt: done" in done.output
    assert "missing failed: exit code 1" in done.output
    assert "none.npz: no such file" in done.output
    assert str(tmp_path / "out" / "missing.log") in done.output
    assert_same_run(out, whole)
    first, failed = read_sweep(grid).runs
    assert (first.state, failed.state) == ("finished", "new")
    shown = CliRunner().invoke(app, ["sweep", str(grid), "--dry-run"])
    assert "# dkt: finished, skipped" in shown.output
    assert shown.output.count("polyshot train") == 1
    (out / "results" / "accuracy.json").unlink()
    (run, _) = read_sweep(grid).runs
    assert run.state == "trained"
    assert [command[3] for command in run.job().commands] == ["evaluate"]
    grid.write_text(grid.read_text("utf-8").replace("epochs = 3", "epochs = 4"), "utf-8")
    with pytest.raises(InputError, match=r"another configuration \(epochs 3 -> 4\)"):
        _ = read_sweep(grid).waiting


def interrupted_at(call: int):  # type: ignore[no-untyped-def]
    from polyshot.runs.validation import validate

    calls = []

    def stop(*arguments):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return validate(*arguments)

    return stop


def test_slurm_jobs_through_the_local_executor_of_submitit(tmp_path: Path, data: str) -> None:
    pytest.importorskip("submitit")
    rest = '[grid]\nmethod = ["dkt"]\n[slurm]\ncluster = "local"\n[[run]]\nname = "missing"\nmethod = "dkt"\n'
    grid = write_grid(tmp_path / "grid.toml", data, rest + 'scenario = "embeddings:none.npz"\n')
    outcomes = {run.name: failure for run, failure in read_sweep(grid).execute("slurm")}
    assert outcomes["dkt"] is None
    assert str(outcomes["missing"]).startswith("exit code 1")
    assert_same_run(tmp_path / "out" / "dkt", train(small("dkt", data), tmp_path / "whole", threads=1))


def test_callbacks_see_every_entry_and_change_nothing(tmp_path: Path, data: str) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    plain = train(small("dkt", data), tmp_path / "plain", threads=1)
    flags = ["--method", "dkt", "--scenario", data, "--threads", "1", "--tensorboard", str(tmp_path / "events")]
    flags += [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "logged"), *flags])
    assert done.exit_code == 0, done.output
    assert_same_run(plain, tmp_path / "logged")
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    history = RunFolder(plain).history
    points = [(point.step, pytest.approx(point.value)) for point in events.Scalars("loss")]
    assert points == [(entry["epoch"], entry["loss"]) for entry in history]
