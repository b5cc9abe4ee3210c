"""From predictions to the figures of a result."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from polyshot.evaluation.measures import MEASURES, N_BINS, OutlierMeasure, Predictions
from polyshot.evaluation.metrics import (
    Interval,
    ReliabilityBins,
    RiskCoverage,
    auroc_per_episode,
    reliability_bins,
    risk_coverage,
)
from polyshot.evaluation.temperature import scale_log_probs
from polyshot.task import OUTSIDE

_LEAST = math.log(1e-300)  # a probability of 0 counts as this, so that every figure is finite
_MOST_POINTS = 200
_CONFIDENCE_BINS, _SCORE_BINS = 20, 40


@dataclass(frozen=True, eq=False)
class ConfidenceHistogram:
    """Numbers of right and wrong answers by confidence."""

    edges: Float[np.ndarray, " edges"]
    right: Int[np.ndarray, " bins"]
    wrong: Int[np.ndarray, " bins"]


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Numbers of queries of known (inside) and unknown (outside) classes by outlier score.

    The bins cover the middle 99.8 % of all scores; the first and last bin also hold what lies beyond.
    """

    edges: Float[np.ndarray, " edges"]
    inside: Int[np.ndarray, " bins"]
    outside: Int[np.ndarray, " bins"]


@dataclass(frozen=True, eq=False)
class MeanRoc:
    """The ROC curve averaged over episodes at equal false positive rates."""

    false_positive_rate: Float[np.ndarray, " k"]
    true_positive_rate: Float[np.ndarray, " k"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Figures:
    """Everything that is computed from the predictions of one run under one protocol.

    Queries of unknown classes count for the outlier measures only. Only `summary` is always there.

    Attributes
    ----------
    summary : dict of Interval
        Each measure by its name.
    episodes : dict of array [episodes]
        Per-episode values by name of the measure, batch after batch.
    reliability : ReliabilityBins, optional
    risk_coverage : RiskCoverage, optional
        At most 200 points.
    confidence_histogram : ConfidenceHistogram, optional
    roc : dict of MeanRoc
        By name of the outlier measure; at most 200 points each.
    score_histograms : dict of ScoreHistogram
        By name of the outlier measure.
    """

    summary: dict[str, Interval]
    episodes: dict[str, Float[np.ndarray, " episodes"]] = field(default_factory=dict)
    reliability: ReliabilityBins | None = None
    risk_coverage: RiskCoverage | None = None
    confidence_histogram: ConfidenceHistogram | None = None
    roc: dict[str, MeanRoc] = field(default_factory=dict)
    score_histograms: dict[str, ScoreHistogram] = field(default_factory=dict)


def summarise(predictions: Predictions, n_batches: int, temperature: float = 1.0) -> Figures:
    """Compute every registered measure, and the curves.

    Parameters
    ----------
    predictions : Predictions
    n_batches : int
        How many batches the episodes are divided into.
    temperature : float
        Log-probabilities are divided by it first; class scores stay as they are.
    """
    log_p = np.maximum(scale_log_probs(predictions.log_probs, temperature), _LEAST)
    predictions = predictions._replace(log_probs=log_p)
    is_inside = predictions.labels != OUTSIDE
    y = predictions.labels[is_inside]
    each = log_p[:, is_inside]
    pooled, pooled_y = each.reshape(-1, log_p.shape[-1]), np.tile(y, len(log_p))
    parts: dict[str, Any] = {"episodes": {}, "summary": {}, "roc": {}, "score_histograms": {}}
    for name, measure in MEASURES.items():
        if isinstance(measure, OutlierMeasure):
            score = None if is_inside.all() else measure.score(predictions)
            if score is None:
                continue
            inside, outside = score[:, is_inside], score[:, ~is_inside]
            values = auroc_per_episode(score, np.broadcast_to(~is_inside, score.shape))
            parts["roc"][name], parts["score_histograms"][name] = mean_roc(inside, outside), _histogram(inside, outside)
        elif measure.per_episode:
            values = np.array([measure.compute(p, y) for p in each])
        else:
            parts["summary"][name] = Interval(measure.compute(pooled, pooled_y))
            continue
        parts["episodes"][name] = values
        parts["summary"][name] = measure.interval(values.reshape(n_batches, -1))
    probs = np.exp(pooled)
    confidence, correct = probs.max(-1), probs.argmax(-1) == pooled_y
    right, wrong = (np.histogram(c, _CONFIDENCE_BINS, (0, 1))[0] for c in (confidence[correct], confidence[~correct]))
    return Figures(
        reliability=reliability_bins(probs, pooled_y, N_BINS),
        risk_coverage=_thinned(risk_coverage(confidence, correct)),
        confidence_histogram=ConfidenceHistogram(np.linspace(0, 1, _CONFIDENCE_BINS + 1), right, wrong),
        **parts,
    )


def mean_roc(inside: Float[np.ndarray, "episodes n"], outside: Float[np.ndarray, "episodes m"]) -> MeanRoc:
    """Average the episodes' ROC curves at equal false positive rates.

    Between one of an episode's n inside scores and the next lower one, the true positive rate is the share of outside
    scores above it, with ties counting half. The mean of these n shares is the episode's AUROC, so the area under the
    averaged steps is the mean AUROC.
    """
    n = inside.shape[1]
    falling = -np.sort(-inside, axis=1)
    kept = np.unique(np.linspace(0, n - 1, min(n, _MOST_POINTS - 2)).round().astype(int))
    rate = np.zeros(len(kept))
    for inside_scores, outside_scores in zip(falling[:, kept], outside, strict=True):
        ordered = np.sort(outside_scores)
        below, up_to = (np.searchsorted(ordered, inside_scores, side) for side in ("left", "right"))
        rate += 1 - (below + up_to) / (2 * outside.shape[1])
    return MeanRoc(np.concatenate([[0], (kept + 0.5) / n, [1]]), np.concatenate([[0], rate / len(inside), [1]]))


def _thinned(curve: RiskCoverage) -> RiskCoverage:
    wanted = np.linspace(curve.coverage[0], 1, _MOST_POINTS)
    kept = np.unique(np.searchsorted(curve.coverage, wanted).clip(max=len(curve.coverage) - 1))
    return RiskCoverage(curve.coverage[kept], curve.accuracy[kept], curve.threshold[kept], curve.area)


def _histogram(inside: Float[np.ndarray, "episodes n"], outside: Float[np.ndarray, "episodes m"]) -> ScoreHistogram:
    both = np.concatenate([inside.ravel(), outside.ravel()])
    edges = np.histogram_bin_edges(np.quantile(both, [0.001, 0.999]), _SCORE_BINS)
    counts = [np.histogram(part.clip(edges[0], edges[-1]), edges)[0] for part in (inside, outside)]
    return ScoreHistogram(edges, *counts)
