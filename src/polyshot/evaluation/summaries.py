"""From predictions to the figures of a result: log_probs and scores [episodes, Q, C], the same labels [Q] for all."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from polyshot.evaluation.metrics import (
    Interval,
    accuracy,
    auroc_per_episode,
    batch_accuracy,
    bootstrap_interval,
    brier_score,
    expected_calibration_error,
    log_likelihood_of_logs,
    maximum_calibration_error,
    mean_interval,
    reliability_bins,
    risk_coverage,
)
from polyshot.evaluation.temperature import scale_log_probs
from polyshot.task import OUTSIDE

N_BINS = 15  # the paper's, for calibration
_LEAST = np.log(1e-300)  # a probability of 0 counts as this, so that every figure is finite
_MOST_POINTS = 200
_HISTOGRAM_BINS = 40


def summarise(
    log_probs: Float[np.ndarray, "episodes q c"],
    scores: Float[np.ndarray, "episodes q c"],
    labels: Int[np.ndarray, " q"],
    n_batches: int,
    temperature: float = 1.0,
    bootstrap_seed: int = 0,
    variance: Float[np.ndarray, "episodes q"] | None = None,
) -> dict[str, Any]:
    """`episodes`, `summary` and the curves of a Result; queries labelled OUTSIDE count for AUROC alone."""
    log_p = np.maximum(scale_log_probs(log_probs, temperature), _LEAST)
    is_inside = labels != OUTSIDE
    y = labels[is_inside]
    each, every = log_p[:, is_inside], log_p[:, is_inside].reshape(-1, log_p.shape[-1])
    probs, every_y = np.exp(every), np.tile(y, len(log_p))
    episodes = {
        "accuracy": np.array([accuracy(p, y) for p in np.exp(each)]),
        "log_likelihood": np.array([log_likelihood_of_logs(p, y) for p in each]),
        "brier": np.array([brier_score(p, y) for p in np.exp(each)]),
    }
    in_batches = batch_accuracy(episodes["accuracy"].reshape(n_batches, -1))
    summary = {
        "accuracy": _as_dict(in_batches.interval) | {"std": in_batches.std},
        "ece": {"value": expected_calibration_error(probs, every_y, N_BINS), "low": None, "high": None},
        "mce": {"value": maximum_calibration_error(probs, every_y, N_BINS), "low": None, "high": None},
        "brier": _as_dict(mean_interval(episodes["brier"])),
        "log_likelihood": _as_dict(mean_interval(episodes["log_likelihood"])),
    }
    roc = histograms = None
    if not is_inside.all():
        outlier = {"score": -scores.max(-1), "entropy": -(np.exp(log_p) * log_p).sum(-1)}
        outlier |= {} if variance is None else {"variance": variance}
        for name in outlier:
            key = "auroc" if name == "score" else f"auroc_{name}"
            episodes[key] = auroc_per_episode(outlier[name], np.broadcast_to(~is_inside, outlier[name].shape))
            summary[key] = _as_dict(bootstrap_interval(episodes[key], bootstrap_seed))
        roc = {name: mean_roc(s[:, is_inside], s[:, ~is_inside]) for name, s in outlier.items()}
        histograms = {name: _histograms(s[:, is_inside], s[:, ~is_inside]) for name, s in outlier.items()}
    bins = reliability_bins(probs, every_y, N_BINS)
    confidence, correct = probs.max(-1), probs.argmax(-1) == every_y
    return {
        "episodes": {name: values.tolist() for name, values in episodes.items()},
        "summary": summary,
        "reliability": {
            "edges": bins.edges, "count": bins.count, "confidence": bins.confidence, "accuracy": bins.accuracy
        },
        "risk_coverage": _risk_coverage(confidence, correct),
        "confidence_histogram": {
            "edges": np.linspace(0, 1, 21),
            "right": np.histogram(confidence[correct], 20, (0, 1))[0],
            "wrong": np.histogram(confidence[~correct], 20, (0, 1))[0],
        },
        "roc": roc,
        "score_histograms": histograms,
    }  # fmt: skip


def mean_roc(
    inside: Float[np.ndarray, "episodes n"], outside: Float[np.ndarray, "episodes m"]
) -> dict[str, Float[np.ndarray, " k"]]:
    """The episodes' ROC curves averaged at equal false positive rates.

    Between the k-th and the next of an episode's inside scores, from the top, the true positive rate is the share of
    outside above, equal ones counting half; the mean of these n shares is the episode's AUROC, so that the area under
    this curve's steps is the mean AUROC.
    """
    n = inside.shape[1]
    falling = -np.sort(-inside, axis=1)
    kept = np.unique(np.linspace(0, n - 1, min(n, _MOST_POINTS - 2)).round().astype(int))
    rate = np.zeros(len(kept))
    for inside_scores, outside_scores in zip(falling[:, kept], outside, strict=True):
        ordered = np.sort(outside_scores)
        below, up_to = (np.searchsorted(ordered, inside_scores, side) for side in ("left", "right"))
        rate += 1 - (below + up_to) / (2 * outside.shape[1])
    return {
        "false_positive_rate": np.concatenate([[0], (kept + 0.5) / n, [1]]),
        "true_positive_rate": np.concatenate([[0], rate / len(inside), [1]]),
    }


def _as_dict(interval: Interval) -> dict[str, float | None]:
    return {"value": interval.estimate, "low": interval.low, "high": interval.high}


def _risk_coverage(confidence: Float[np.ndarray, " n"], correct: np.ndarray) -> dict[str, Any]:
    curve = risk_coverage(confidence, correct)
    wanted = np.linspace(curve.coverage[0], 1, _MOST_POINTS)
    kept = np.unique(np.searchsorted(curve.coverage, wanted).clip(max=len(curve.coverage) - 1))
    return {"coverage": curve.coverage[kept], "accuracy": curve.accuracy[kept], "area": curve.area}


def _histograms(inside: np.ndarray, outside: np.ndarray) -> dict[str, np.ndarray]:
    """Counts over the middle 99.8 % of all scores; the end bins hold what lies beyond."""
    both = np.concatenate([inside.ravel(), outside.ravel()])
    edges = np.histogram_bin_edges(np.quantile(both, [0.001, 0.999]), _HISTOGRAM_BINS)
    counts = [np.histogram(part.clip(edges[0], edges[-1]), edges)[0] for part in (inside, outside)]
    return {"edges": edges, "inside": counts[0], "outside": counts[1]}
