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


def test_sums_of_a_cell_know_the_calibration_error_that_is_due_to_chance_and_the_error_of_a_ratio(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    pool, tables = (
        importlib.import_module(f"benchmarks.{name}") for name in ("estimator_pool", "estimator_pool_table")
    )
    rng = np.random.default_rng(0)
    found, ratios = [], []
    for _ in range(100):  # cells of five episodes with 60 queries each, calibrated
        sums: dict = {}
        for _ in range(5):
            top = rng.uniform(0.5, 1, 60)
            losses = np.exp(rng.normal(0, 0.3, 2))
            gaps = pool.gaps(np.stack([top, 1 - top], 1), (rng.random(60) > top).astype(int))
            found_now = {"queries": 60.0, "no pool": losses[0], "pool": losses[1], "pool, gaps": gaps}
            sums = tables.added(sums, found_now | {"products": np.outer(losses, losses)})
        assert sums["episodes"] == 5
        found.append(tables.calibration_errors(sums, "pool"))
        ratios.append(tables.ratio(sums))
    ece, by_chance = np.mean(found, 0)
    assert ece == pytest.approx(by_chance, rel=0.1)
    assert np.std([ratio for ratio, _ in ratios]) == pytest.approx(np.mean([error for _, error in ratios]), rel=0.3)


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


def test_every_choice_of_the_page_can_be_made_otherwise(monkeypatch):
    """An alternative that changed nothing would be a patch of what no longer exists."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    choices = importlib.import_module("benchmarks.estimator_choices")
    X, y, queries, labels, unseen = blobs(n_way=5, n_shot=4, dim=128)
    rng = np.random.default_rng(1)
    X, queries, unseen = (np.exp(x + 3 * rng.standard_normal(x.shape)) for x in (X, queries, unseen))  # for the roots
    weights = np.full(len(labels), 1 / len(labels))
    task = choices.Task(X[2:], y[2:], queries, labels, weights, unseen)
    for name, (_, alternatives) in choices.TABLES.items():
        values = {key: float(np.min(loss(task))) for key, loss in alternatives.items() if key != "auto"}
        assert len(set(values.values())) == len(values), name
        assert all(np.isfinite(list(values.values()))), name
