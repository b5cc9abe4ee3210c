import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from paper.figures import app
from paper.studies import iris_figures, iris_study
from paper.studies.iris import Effort, iris_kernel, make_split
from paper.studies.iris_maps import Plane, decision_maps
from paper.studies.iris_study import IrisSettings, differences, pooled_ece, run_study, summarise
from polyshot.errors import InputError

QUICK = Effort(n_chains=16, n_steps=8, small_steps=16, n_weights=400, slice_chains=16, slice_steps=20)
run = CliRunner().invoke


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory):
    return run_study(tmp_path_factory.mktemp("study"), IrisSettings((1, 5, 20), 6, 0, QUICK))


def mean_of(study, score: str, size: int, method: str, rule: str = "mean") -> float:
    wanted = size, method, rule, score
    (row,) = [r for r in summarise(study) if (r["size"], r["method"], r["rule"], r["score"]) == wanted]
    return row["mean"]


def test_the_kernel_is_the_papers() -> None:
    x = torch.tensor([[5.1, 3.5], [4.9, 3.0]], dtype=torch.float64)
    with torch.no_grad():
        assert float(iris_kernel()(x)[0, 1]) == pytest.approx(np.exp(-(0.2**2 + 0.5**2) / 2), abs=1e-7)


def test_a_split_has_so_many_of_each_class_and_tests_on_the_rest() -> None:
    split = make_split(7, 3, 0)
    assert torch.bincount(split.y).tolist() == [7, 7, 7]
    assert torch.bincount(split.y_test).tolist() == [43, 43, 43]
    assert not torch.equal(split.x, make_split(7, 4, 0).x)
    assert torch.equal(split.x, make_split(7, 3, 0).x)


@pytest.mark.parametrize("size", [1, 5, 20])
def test_the_elbo_ranks_one_vs_each_before_logistic_softmax_before_gaussian(size: int, study) -> None:
    bounds = [mean_of(study, "elbo", size, m, "evidence") for m in ("gaussian", "logistic-softmax", "one-vs-each")]
    assert bounds == sorted(bounds)
    assert bounds[-1] < mean_of(study, "elbo", size, "softmax", "importance")


def test_the_two_estimates_of_softmax_evidence_agree(study) -> None:
    gaps = [mean_of(study, "kl", size, "softmax", "reciprocal") for size in (1, 5)]
    assert max(map(abs, gaps)) < 0.06


def test_one_vs_each_has_a_better_brier_score_than_logistic_softmax(study) -> None:
    rows = [r for r in differences(study) if (r["score"], r["one-vs-each minus"]) == ("brier", "logistic-softmax")]
    assert len(rows) == 6
    assert all(row["high"] < 0 for row in rows)


def test_gaussian_is_best_calibrated_with_few_examples_and_logistic_softmax_worst(study) -> None:
    for size in (1, 5):
        ece = [mean_of(study, "ece", size, m) for m in ("gaussian", "one-vs-each", "logistic-softmax")]
        assert ece == sorted(ece)


def test_more_examples_help_everyone(study) -> None:
    for method in ("gaussian", "logistic-softmax", "one-vs-each"):
        assert mean_of(study, "brier", 20, method) < mean_of(study, "brier", 1, method)


def test_ece_of_all_splits_together_is_not_above_the_mean_of_single_ones(study) -> None:
    for row in pooled_ece(study):
        assert row["ece"] <= mean_of(study, "ece", row["size"], row["method"], row["rule"]) + 1e-12


def test_results_do_not_depend_on_workers_parts_or_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_workers: None
) -> None:
    monkeypatch.setattr(iris_study, "_PART", 2)
    settings = IrisSettings((1,), 4, 5, Effort(8, 4, 16, 50, 4, 8))
    solve = iris_study.solve_split
    solved: list[int] = []

    def record(size: int, split: int, *rest):
        if len(solved) == 2:
            raise KeyboardInterrupt
        solved.append(split)
        return solve(size, split, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(iris_study, "solve_split", record)
        with pytest.raises(KeyboardInterrupt):
            run_study(tmp_path / "a", settings)
        assert solved == [0, 1]
        solved.clear()
        resumed = run_study(tmp_path / "a", settings)
        assert solved == [2, 3]
    assert resumed == run_study(tmp_path / "b", settings, n_workers=2)
    assert {p.suffix for p in (tmp_path / "b" / "parts").rglob("*") if p.is_file()} == {".json"}
    monkeypatch.setattr(iris_study, "_PART", 3)
    assert resumed == run_study(tmp_path / "c", settings)


def test_other_settings_never_take_over_parts(tmp_path: Path) -> None:
    effort = Effort(8, 4, 16, 50, 4, 8)
    first = run_study(tmp_path, IrisSettings((1,), 2, 0, effort))
    assert run_study(tmp_path, IrisSettings((1,), 2, 1, effort)) != first
    assert run_study(tmp_path, IrisSettings((1,), 2, 0, effort)) == first


def test_the_command_writes_figures_numbers_and_words_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iris_figures, "decision_maps", partial(decision_maps, n_points=21))
    command = f"iris --quick --sizes 1,6 --splits 2 --workers 1 --out {tmp_path}".split()
    result = run(app, command)
    assert result.exit_code == 0, result.output
    assert "One-vs-each against Logistic softmax, same splits, 95 %" in result.output
    numbers = json.loads((tmp_path / "iris.json").read_text())
    assert numbers["settings"]["sizes"] == [1, 6]
    for end in (".png", ".svg", "_maps.png", "_maps.svg", "_maps.csv", "_summary.csv", "_bounds.csv", ".md"):
        assert (tmp_path / f"iris{end}").stat().st_size > 0
    before = {path: path.read_bytes() for path in tmp_path.glob("iris*")}
    monkeypatch.setattr(iris_study, "solve_split", None)  # nothing is left to solve
    assert run(app, command).exit_code == 0
    assert all(path.read_bytes() == content for path, content in before.items())


def test_decision_maps_are_computed_on_one_thread_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def maps(*args: Any) -> Plane:
        threads.append(torch.get_num_threads())
        return decision_maps(*args, n_points=11)

    monkeypatch.setattr(iris_figures, "decision_maps", maps)
    settings = IrisSettings((1, 2), 2, 0, QUICK)
    rows = run_study(tmp_path, settings)
    torch.set_num_threads(2)
    try:
        iris_figures.iris_figures(tmp_path, rows, settings)
    finally:
        torch.set_num_threads(1)
    assert threads == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "1,50"], "sizes are 1 to 49, not [50]"),
        (["--sizes", "0"], "sizes are 1 to 49, not [0]"),
        (["--sizes", "3,3"], "must be different"),
        (["--sizes", "many"], "whole numbers separated by commas"),
    ],
)
def test_bad_options_are_messages(options: list[str], message: str, tmp_path: Path) -> None:
    result = run(app, ["iris", "--out", str(tmp_path), *options])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 2 splits"):
        IrisSettings(n_splits=1)
    with pytest.raises(InputError, match="a seed >= 0"):
        IrisSettings(seed=-1)
    with pytest.raises(InputError, match="train on 1 to 49, not 50"):
        make_split(50, 0, 0)
    for effort in ({"n_chains": 1}, {"n_steps": 2}, {"n_weights": 3}, {"slice_steps": 4}):
        with pytest.raises(InputError, match="need at least 2"):
            Effort(**effort)
    with pytest.raises(InputError, match="n_workers"):
        run_study(tmp_path, IrisSettings((1,), 2), n_workers=0)
