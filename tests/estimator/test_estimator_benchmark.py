import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from blobs import blobs


def test_without_a_limit_of_time_every_method_gets_all_its_episodes(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    benchmark = importlib.import_module("benchmarks.estimator")
    X, labels, *_ = blobs(n_way=3, n_shot=20, dim=4)
    monkeypatch.setattr(benchmark, "load_all", lambda: {"wine": benchmark.Data(X, labels, X[:0], scale=True)})
    monkeypatch.setattr(benchmark, "spent", lambda _: 1e9)
    argv = ["x", "--episodes", "2", "--match", "/1-shot", "--methods", "proto|One", "--out", str(tmp_path / "x.json")]
    monkeypatch.setattr("sys.argv", argv)
    benchmark.main()
    (methods,) = json.loads((tmp_path / "x.json").read_text()).values()
    assert {name: len(entry["log_loss"]) for name, entry in methods.items()} == {
        "OneVsEachClassifier": 2,
        "prototypes": 2,
    }
    assert "| wine/all/3-way/1-shot | 2 |" in (tmp_path / "x.md").read_text()


def test_the_prior_of_the_scale_is_learned_with_the_coefficient_of_the_scatter_that_was_asked_for(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    prior = importlib.import_module("benchmarks.estimator_prior")
    tasks = {}
    for n_shot, each in ((1, 0.05), (5, 0.1), (20, 0.2)):
        cell = importlib.import_module("benchmarks.estimator_tasks").Cell("made", "design", 5, n_shot)
        scatters = each * np.array([0.5, 1.0, 2.0])
        best = 5 - 0.6 * np.log(n_shot) - np.log(scatters / 0.1)
        loss = 0.1 + (prior.FINE - best[:, None]) ** 2
        tasks[cell] = np.stack([loss, np.zeros_like(loss)], 1), scatters
    with_scatter, without = (prior.learn(tasks, coefficient) for coefficient in (1.0, 0.0))
    assert (with_scatter.by_scatter, without.by_scatter) == (1, 0)
    assert with_scatter.level == pytest.approx(5, abs=0.1)
    assert prior.regret(with_scatter, tasks) < prior.regret(without, tasks) - 0.1
