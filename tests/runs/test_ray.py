"""A local Ray cluster of two workers: a sweep with one killed in the middle, shards of `classify`, joblib's work."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.model_selection import cross_val_score

from polyshot import OneVsEachClassifier
from polyshot.app import Columns, ItemClassifier, Items, Levels, classify
from polyshot.app.shards import QuerySource, answer_in_shards
from polyshot.evaluation.grid import read_sweep
from polyshot.runs.trainer import train
from small_runs import SMALL, assert_same_run, small, write_embeddings

ray = pytest.importorskip("ray", reason="needs polyshot[ray]")
pytestmark = pytest.mark.filterwarnings("default")  # ray's own warnings

EPOCHS = 20  # long enough to be killed in the middle


def kill_a_worker_at_work(started: Path, killed: list[int]) -> None:
    """Wait until a run has finished an epoch, then kill the Ray worker that trains it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if started.is_file() and started.read_text().count("\n") >= 2:
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, ValueError):
                    continue
                if b"train" in words and str(started.parent).encode() in words:
                    os.kill(parent, signal.SIGKILL)
                    killed.append(parent)
                    return
        time.sleep(0.02)


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # otherwise Ray writes a token into the user's home
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.mark.usefixtures("_cluster")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the worker's process in /proc")
def test_a_run_whose_worker_is_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    data = f"embeddings:{write_embeddings(tmp_path / 'small.npz')}"
    settings = {**SMALL, "epochs": EPOCHS}
    common = "\n".join(f"{name} = {value}" for name, value in settings.items())
    grid = tmp_path / "grid.toml"
    grid.write_text(
        f'out = "{tmp_path / "out"}"\n[train]\nscenario = "{data}"\n{common}\n'
        '[[run]]\nname = "a"\nmethod = "ove-gp"\noptions = {n_chains = 2, test_steps = 2}\n'
        '[[run]]\nname = "b"\nmethod = "dkt"\nepochs = 2\n',
        "utf-8",
    )
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker_at_work, args=(tmp_path / "out" / "a" / "log.jsonl", killed))
    killer.start()
    outcomes = {run.name: failure for run, failure in read_sweep(grid).execute("ray", 2)}
    killer.join()
    assert outcomes == {"a": None, "b": None}
    assert len(killed) == 1
    log = (tmp_path / "out" / "a.log").read_text()
    assert log.count(" train ") == 2, "the run was not started again"
    options = {"n_chains": 2, "test_steps": 2}
    whole = train(small("ove-gp", data, epochs=EPOCHS, options=options), tmp_path / "whole", threads=1, quiet=True)
    assert_same_run(tmp_path / "out" / "a", whole)


@pytest.mark.usefixtures("_cluster")
def test_shards_of_queries_have_the_answers_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 4)) + 3 * np.eye(4)[k] for k in range(2)])
    labels = np.where(np.arange(600) % 300 < 3, np.arange(600) // 300, -1)
    np.savez(tmp_path / "t.npz", X=X, labels=labels, class_names=np.array(["a", "b"]))
    model = ItemClassifier.fit(Items.of("vectors", X[labels >= 0]), ["ab"[k] for k in labels[labels >= 0]])
    source, levels = QuerySource(tmp_path / "t.npz", Columns(), has_examples=True), Levels(None, None)
    monkeypatch.setattr("polyshot.app.shards._SHARD", 500)
    answer_in_shards(model, source, 594, levels, tmp_path / "parts", "ray")
    chunks = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "parts").glob("0*.json")}
    assert sorted(chunks) == ["000000.json", "000001.json", "000002.json"]
    spread = list(classify(model, source.read(), levels, parts=tmp_path / "parts"))
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "parts").glob("0*.json")} == chunks
    assert spread == list(classify(model, source.read(), levels))


@pytest.mark.usefixtures("_cluster")
def test_folds_that_joblib_sends_to_ray_have_the_same_scores() -> None:
    from ray.util.joblib import register_ray

    register_ray()
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    X = 0.2 * rng.normal(size=(3, 128))[y] + rng.normal(size=(24, 128))
    expected = cross_val_score(OneVsEachClassifier(), X, y, cv=2, scoring="neg_log_loss")
    with parallel_config("ray", n_jobs=2):
        found = cross_val_score(OneVsEachClassifier(), X, y, cv=2, scoring="neg_log_loss")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
