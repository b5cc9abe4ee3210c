import json

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.metrics import roc_auc_score

from polyshot.evaluation import metrics
from polyshot.evaluation.measures import MEASURES, Measure, OutlierMeasure, Predictions, measure_of
from polyshot.evaluation.results import to_json
from polyshot.evaluation.summaries import Figures, mean_roc, summarise
from polyshot.evaluation.typed_json import encode

INSIDE = np.repeat(np.arange(3), 4)
LABELS = np.concatenate([INSIDE, np.full(8, -1)])


def predictions(n: int, seed: int = 0) -> Predictions:
    """Predictions for n episodes; whole scores, so that some are equal."""
    scores = np.random.default_rng(seed).integers(-2, 3, size=(n, len(LABELS), 3)).astype(float)
    scores[:, np.arange(12), INSIDE] += 1
    return Predictions(log_softmax(scores, -1), scores, LABELS)


def test_summary_agrees_with_the_metrics_on_inside_queries_alone() -> None:
    given = predictions(6)
    figures = summarise(given, 3)
    probs = np.exp(given.log_probs[:, :12])
    each = [metrics.accuracy(p, INSIDE) for p in probs]
    pooled, labels = probs.reshape(-1, 3), np.tile(INSIDE, 6)
    found = {name: interval.estimate for name, interval in figures.summary.items()}
    assert figures.episodes["accuracy"].tolist() == each
    assert found["accuracy"] == pytest.approx(np.mean(each))
    assert figures.summary["accuracy"].std == pytest.approx(np.reshape(each, (3, 2)).mean(1).std())
    assert found["ece"] == metrics.expected_calibration_error(pooled, labels)
    assert found["mce"] == metrics.maximum_calibration_error(pooled, labels)
    assert found["brier"] == pytest.approx(metrics.brier_score(pooled, labels))
    assert found["log_likelihood"] == pytest.approx(metrics.log_likelihood(pooled, labels))
    histogram, bins = figures.confidence_histogram, figures.reliability
    assert histogram is not None
    assert bins is not None
    assert histogram.right.sum() == pytest.approx(72 * np.mean(each))
    assert histogram.right.sum() + histogram.wrong.sum() == bins.count.sum() == 72


def test_auroc_is_that_of_minus_the_largest_logit_and_of_the_entropy() -> None:
    scores = np.random.default_rng(0).normal(size=(5, len(LABELS), 3))
    log_probs = log_softmax(scores, -1)
    figures = summarise(Predictions(log_probs, scores, LABELS), 1)
    entropy = -(np.exp(log_probs) * log_probs).sum(-1)
    for name, outlier in (("auroc", -scores.max(-1)), ("auroc_entropy", entropy)):
        assert figures.episodes[name] == pytest.approx([roc_auc_score(LABELS < 0, s) for s in outlier])
        interval = figures.summary[name]
        assert interval.low <= interval.estimate <= interval.high
    histogram = figures.score_histograms["auroc"]
    assert histogram.inside.sum() == 60
    assert histogram.outside.sum() == 40


def test_the_area_under_the_mean_roc_is_the_mean_auroc_also_with_ties() -> None:
    scores = np.random.default_rng(0).integers(0, 6, size=(7, 20)).astype(float)
    curve = mean_roc(scores[:, :12], scores[:, 12:])
    expected = [roc_auc_score(np.arange(20) >= 12, row) for row in scores]
    assert curve.true_positive_rate[1:-1].mean() == pytest.approx(np.mean(expected))
    assert (np.diff(curve.true_positive_rate) >= 0).all()


def test_long_curves_have_at_most_200_points() -> None:
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.zeros(300, int), np.full(300, -1)])
    scores = rng.normal(size=(3, 600, 2))
    figures = summarise(Predictions(log_softmax(scores, -1), scores, labels), 1)
    assert figures.risk_coverage is not None
    for x in (figures.risk_coverage.coverage, figures.roc["auroc"].false_positive_rate):
        assert 150 < len(x) <= 200
        assert x[-1] == 1
    assert len(figures.risk_coverage.threshold) == len(figures.risk_coverage.coverage)


def test_a_temperature_softens_probabilities_and_leaves_accuracy_and_the_score() -> None:
    given = predictions(4)
    plain, scaled = summarise(given, 1), summarise(given, 1, temperature=5.0)
    for name in ("accuracy", "auroc"):
        assert plain.episodes[name].tolist() == scaled.episodes[name].tolist()
    expected = log_softmax(given.log_probs[0, :12] / 5, -1)[np.arange(12), INSIDE].mean()
    assert scaled.episodes["log_likelihood"][0] == pytest.approx(expected)


def test_a_probability_of_zero_leaves_every_figure_finite() -> None:
    log_probs = np.log(
        [[[1.0, 0.0], [0.0, 1.0]]], where=[[[True, False], [False, True]]], out=np.full((1, 2, 2), -np.inf)
    )
    figures = summarise(Predictions(log_probs, np.zeros((1, 2, 2)), np.array([0, 0])), 1)
    assert figures.episodes["log_likelihood"].tolist() == [pytest.approx(np.log(1e-300) / 2)]
    accuracy = json.loads(to_json(encode(figures)))["summary"]["accuracy"]
    assert accuracy == {"estimate": 0.5, "low": None, "high": None, "level": 0.95, "std": None}


def test_a_variance_is_one_more_score_for_unknown_classes() -> None:
    given = predictions(4)
    variance = np.random.default_rng(1).random((4, len(LABELS)))
    figures = summarise(given._replace(variance=variance), 1)
    assert figures.episodes["auroc_variance"] == pytest.approx([roc_auc_score(LABELS < 0, v) for v in variance])
    scores = {"auroc_own", "auroc", "auroc_entropy", "auroc_variance"}
    assert set(figures.roc) == set(figures.score_histograms) == scores
    assert "auroc_variance" not in summarise(given, 1).summary


def test_a_registered_measure_is_computed_per_episode_pooled_or_for_unknown_classes() -> None:
    def confidence(log_probs: np.ndarray, labels: np.ndarray) -> float:
        return float(np.exp(log_probs).max(1).mean())

    new = (
        Measure("sure", "Mean confidence", compute=confidence),
        Measure("sure_pooled", "Mean confidence of all", compute=confidence, per_episode=False),
        OutlierMeasure("auroc_first", "AUROC, first logit", score=lambda p: p.scores[..., 0]),
    )
    given = predictions(4)
    try:
        for measure in new:
            MEASURES.register(measure.name, measure)
        figures = summarise(given, 2)
    finally:
        for measure in new:
            MEASURES.unregister(measure.name)
    expected = np.exp(given.log_probs[:, :12]).max(-1).mean(1)
    assert figures.episodes["sure"] == pytest.approx(expected)
    assert figures.summary["sure"] == metrics.mean_interval(figures.episodes["sure"])
    assert figures.summary["sure_pooled"].estimate == pytest.approx(expected.mean())
    assert "sure_pooled" not in figures.episodes
    auroc = [roc_auc_score(LABELS < 0, scores) for scores in given.scores[..., 0]]
    assert figures.episodes["auroc_first"] == pytest.approx(auroc)
    assert {"auroc_first"} == figures.roc.keys() - summarise(given, 2).roc.keys()


def test_a_measure_shows_itself_in_its_own_unit_and_an_unknown_one_under_its_plain_name() -> None:
    assert (MEASURES["accuracy"].heading, MEASURES["accuracy"].text(0.12345)) == ("Accuracy (%)", "12.35")
    assert (MEASURES["ece"].heading, MEASURES["ece"].text(0.12345, sign=True)) == ("ECE", "+0.123")
    assert measure_of("top_2").heading == "top 2"


def test_every_figure_but_the_summary_is_optional() -> None:
    assert Figures(summary={}).episodes == {}
