import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.metrics import roc_auc_score

from polyshot.errors import DataError
from polyshot.evaluation import metrics
from polyshot.evaluation.results import (
    COMPARISON_FORMAT,
    Result,
    find_results,
    read_result,
    rounded,
    to_json,
    write_result,
)
from polyshot.evaluation.summaries import mean_roc, summarise

INSIDE = np.repeat(np.arange(3), 4)
LABELS = np.concatenate([INSIDE, np.full(8, -1)])


def predictions(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities and scores of n episodes; whole scores, so that some are equal."""
    scores = np.random.default_rng(seed).integers(-2, 3, size=(n, len(LABELS), 3)).astype(float)
    scores[:, np.arange(12), INSIDE] += 1
    return log_softmax(scores, -1), scores


def a_result(**changes: Any) -> Result:
    figures = rounded(summarise(*predictions(4), LABELS, 2))
    given = {
        "protocol": "out-of-episode", "run": "mine", "method": "protonet", "options": {}, "scenario": "glyphs",
        "test_set": "glyphs test", "test_data": "0", "training": {}, "trained_episodes": 7, "settings": {},
        "temperature": None, "packages": {}, "seconds": 1.0, "weights": "abc", "examples": {}, **figures,
    }  # fmt: skip
    return Result(**(given | changes))


def test_a_file_holds_all_of_a_result_to_six_digits(tmp_path: Path) -> None:
    result = a_result()
    write_result(tmp_path / "x.json", result)
    read = read_result(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["format"] == "polyshot-result-2"
    assert read.path == tmp_path / "x.json"
    assert read.trained_episodes == 7
    np.testing.assert_allclose(read.episodes["brier"], result.episodes["brier"], rtol=1e-5)
    assert read.summary["ece"]["low"] is None
    write_result(tmp_path / "y.json", read)
    assert (tmp_path / "x.json").read_bytes() == (tmp_path / "y.json").read_bytes()


def test_numbers_are_rounded_and_nan_is_null() -> None:
    assert rounded({"a": np.array([1 / 3, np.nan]), "b": (np.int64(1234567), True)}) == {
        "a": [0.333333, None],
        "b": [1234567, True],
    }


def test_results_are_found_in_folders_once_and_other_files_are_left(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_result(tmp_path / name / "results" / "accuracy.json", a_result(run=name))
    (tmp_path / "comparison.json").write_bytes(to_json({"format": COMPARISON_FORMAT, "comparisons": []}))
    (tmp_path / "config.json").write_text("{}")
    found = find_results([tmp_path, tmp_path / "a" / "results" / "accuracy.json"])
    assert [r.run for r in found] == ["a", "b"]


def test_what_is_no_result_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder; `polyshot evaluate"):
        find_results([tmp_path / "none"])
    with pytest.raises(DataError, match="holds no results"):
        find_results([tmp_path])
    for content, message in (("no", "not a JSON"), ("[]", "no result"), ('{"format": "polyshot-result-0"}', "version")):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(DataError, match=message):
            find_results([tmp_path / "x.json"])


def test_a_scaled_result_says_so_in_its_label() -> None:
    assert a_result().label == "mine"
    assert replace(a_result(), temperature={"value": 2.0}).label == "mine (temperature)"


def test_summary_agrees_with_the_metrics_on_inside_queries_alone() -> None:
    log_probs, scores = predictions(6)
    figures = summarise(log_probs, scores, LABELS, 3)
    probs = np.exp(log_probs[:, :12])
    each = [metrics.accuracy(p, INSIDE) for p in probs]
    pooled, labels = probs.reshape(-1, 3), np.tile(INSIDE, 6)
    assert figures["episodes"]["accuracy"] == each
    assert figures["summary"]["accuracy"]["value"] == pytest.approx(np.mean(each))
    assert figures["summary"]["accuracy"]["std"] == pytest.approx(np.reshape(each, (3, 2)).mean(1).std())
    assert figures["summary"]["ece"]["value"] == metrics.expected_calibration_error(pooled, labels)
    assert figures["summary"]["brier"]["value"] == pytest.approx(metrics.brier_score(pooled, labels))
    assert figures["summary"]["log_likelihood"]["value"] == pytest.approx(metrics.log_likelihood(pooled, labels))
    histogram = figures["confidence_histogram"]
    assert sum(histogram["right"]) == pytest.approx(72 * np.mean(each))
    assert sum(histogram["right"]) + sum(histogram["wrong"]) == sum(figures["reliability"]["count"]) == 72


def test_auroc_is_that_of_minus_the_largest_logit_and_of_the_entropy() -> None:
    scores = np.random.default_rng(0).normal(size=(5, len(LABELS), 3))
    log_probs = log_softmax(scores, -1)
    figures = summarise(log_probs, scores, LABELS, 1)
    entropy = -(np.exp(log_probs) * log_probs).sum(-1)
    for name, outlier in (("auroc", -scores.max(-1)), ("auroc_entropy", entropy)):
        assert figures["episodes"][name] == pytest.approx([roc_auc_score(LABELS < 0, s) for s in outlier])
        assert figures["summary"][name]["low"] <= figures["summary"][name]["value"] <= figures["summary"][name]["high"]
    histogram = figures["score_histograms"]["score"]
    assert sum(histogram["inside"]) == 60
    assert sum(histogram["outside"]) == 40


def test_the_area_under_the_mean_roc_is_the_mean_auroc_also_with_ties() -> None:
    scores = np.random.default_rng(0).integers(0, 6, size=(7, 20)).astype(float)
    curve = mean_roc(scores[:, :12], scores[:, 12:])
    expected = [roc_auc_score(np.arange(20) >= 12, row) for row in scores]
    assert curve["true_positive_rate"][1:-1].mean() == pytest.approx(np.mean(expected))
    assert (np.diff(curve["true_positive_rate"]) >= 0).all()


def test_long_curves_have_at_most_200_points() -> None:
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.zeros(300, int), np.full(300, -1)])
    scores = rng.normal(size=(3, 600, 2))
    figures = summarise(log_softmax(scores, -1), scores, labels, 1)
    for curve, x in ((figures["risk_coverage"], "coverage"), (figures["roc"]["score"], "false_positive_rate")):
        assert 150 < len(curve[x]) <= 200
        assert curve[x][-1] == 1


def test_a_temperature_softens_probabilities_and_leaves_accuracy_and_the_score() -> None:
    log_probs, scores = predictions(4)
    plain, scaled = summarise(log_probs, scores, LABELS, 1), summarise(log_probs, scores, LABELS, 1, temperature=5.0)
    for name in ("accuracy", "auroc"):
        assert plain["episodes"][name] == scaled["episodes"][name]
    expected = log_softmax(log_probs[0, :12] / 5, -1)[np.arange(12), INSIDE].mean()
    assert scaled["episodes"]["log_likelihood"][0] == pytest.approx(expected)


def test_a_probability_of_zero_leaves_every_figure_finite() -> None:
    log_probs = np.log(
        [[[1.0, 0.0], [0.0, 1.0]]], where=[[[True, False], [False, True]]], out=np.full((1, 2, 2), -np.inf)
    )
    figures = summarise(log_probs, np.zeros((1, 2, 2)), np.array([0, 0]), 1)
    assert figures["episodes"]["log_likelihood"] == [pytest.approx(np.log(1e-300) / 2)]
    assert json.loads(to_json(figures))["summary"]["accuracy"] == {"value": 0.5, "low": None, "high": None, "std": None}


def test_a_variance_is_one_more_score_for_unknown_classes() -> None:
    log_probs, scores = predictions(4)
    variance = np.random.default_rng(1).random((4, len(LABELS)))
    figures = summarise(log_probs, scores, LABELS, 1, variance=variance)
    assert figures["episodes"]["auroc_variance"] == pytest.approx([roc_auc_score(LABELS < 0, v) for v in variance])
    assert set(figures["roc"]) == set(figures["score_histograms"]) == {"score", "entropy", "variance"}
    assert "auroc_variance" not in summarise(log_probs, scores, LABELS, 1)["summary"]
