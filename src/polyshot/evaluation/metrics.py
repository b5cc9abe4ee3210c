"""How good probabilities and outlier scores are: arrays in, numbers out.

Every function takes NumPy arrays or torch tensors (on any device; copied to float64). None knows episodes or files.
`probs` is [n, C] with rows that sum to one: within 1e-6 in double precision, within 1e-3 in any other. `labels` is [n]
with whole numbers in 0..C-1. The predicted class has the largest probability (the first one in a tie), and that
probability is the confidence. Bad input raises InputError.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

from polyshot.errors import InputError
from polyshot.evaluation.checks import (
    ArrayOrTensor,
    check_flags,
    check_level,
    check_log_probs,
    check_probs,
    check_scores,
    finite_array,
)

_CHUNK = 2**21  # numbers drawn at once, to bound the memory of resampling


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval.

    Attributes
    ----------
    estimate : float
    low, high : float
        Bounds of the interval; NaN where there are too few values for one.
    level : float
        Confidence level of the interval.
    std : float
        Standard deviation of the batch means, where the values come in batches (`batch_accuracy`); NaN elsewhere.
    """

    estimate: float
    low: float = math.nan
    high: float = math.nan
    level: float = 0.95
    std: float = math.nan

    @property
    def bounded(self) -> bool:
        """Whether there is an interval around the estimate."""
        return not (math.isnan(self.low) or math.isnan(self.high))


@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    """Confidence against accuracy in bins of equal width.

    Bin b is (edges[b], edges[b + 1]] as in Guo et al. (2017); torchmetrics uses [lower, upper) instead and puts a
    confidence of exactly 1 into a separate bin.

    Attributes
    ----------
    edges : array [bins + 1]
    count : array [bins]
        Examples in each bin.
    confidence, accuracy : array [bins]
        Means over the examples of the bin; NaN where it is empty.
    """

    edges: Float[np.ndarray, " edges"]
    count: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]

    @property
    def gap(self) -> Float[np.ndarray, " bins"]:
        """|accuracy - confidence|, 0 for an empty bin."""
        gap: npt.NDArray[np.float64] = np.nan_to_num(np.abs(self.accuracy - self.confidence))
        return gap


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Accuracy if only the most confident examples are answered; equal confidences are answered together.

    Attributes
    ----------
    coverage : array [k]
        Share of the examples that is answered.
    accuracy : array [k]
        Accuracy among them.
    threshold : array [k]
        Smallest confidence among them.
    area : float
        Mean accuracy over every number answered, 1..n, in expectation over the order of equal confidences: one minus
        the AURC of Geifman & El-Yaniv (2017).
    """

    coverage: Float[np.ndarray, " k"]
    accuracy: Float[np.ndarray, " k"]
    threshold: Float[np.ndarray, " k"]
    area: float


@dataclass(frozen=True, eq=False)
class RocCurve:
    """Shares of inside and outside examples whose score reaches a threshold; starts at (0, 0) with threshold infinity.

    Attributes
    ----------
    false_positive_rate : array [k]
        Share of the inside examples with score >= threshold.
    true_positive_rate : array [k]
        Share of the outside examples with score >= threshold.
    threshold : array [k]
    """

    false_positive_rate: Float[np.ndarray, " k"]
    true_positive_rate: Float[np.ndarray, " k"]
    threshold: Float[np.ndarray, " k"] = field(metadata={"infinite": True})


def accuracy(probs: ArrayOrTensor, labels: ArrayOrTensor) -> float:
    """Share of correct predictions."""
    return float(_confidence_and_correct(probs, labels)[1].mean())


def expected_calibration_error(probs: ArrayOrTensor, labels: ArrayOrTensor, n_bins: int = 15) -> float:
    """Mean over examples of their bin's |accuracy - confidence| (Guo et al., 2017)."""
    bins = reliability_bins(probs, labels, n_bins)
    return float(bins.gap @ bins.count / bins.count.sum())


def maximum_calibration_error(probs: ArrayOrTensor, labels: ArrayOrTensor, n_bins: int = 15) -> float:
    """Largest |accuracy - confidence| among the bins that are not empty."""
    return float(reliability_bins(probs, labels, n_bins).gap.max())


def brier_score(probs: ArrayOrTensor, labels: ArrayOrTensor) -> float:
    """Squared error summed over classes, mean over examples: 0 if certain and right, 2 if certain and wrong."""
    p, y = check_probs(probs, labels)
    p[np.arange(len(y)), y] -= 1
    return float(np.square(p).sum(1).mean())


def log_likelihood(probs: ArrayOrTensor, labels: ArrayOrTensor) -> float:
    """Mean natural logarithm of the true class's probability; -inf if any of these is 0."""
    p, y = check_probs(probs, labels)
    with np.errstate(divide="ignore"):
        return float(np.log(p[np.arange(len(y)), y]).mean())


def log_likelihood_of_logs(log_probs: ArrayOrTensor, labels: ArrayOrTensor) -> float:
    """`log_likelihood` from log-probabilities [n, C]: correct even where a probability underflows."""
    log_p, y = check_log_probs(log_probs, labels)
    return float(log_p[np.arange(len(y)), y].mean())


def reliability_bins(probs: ArrayOrTensor, labels: ArrayOrTensor, n_bins: int = 15) -> ReliabilityBins:
    """Bin the examples by confidence, in `n_bins` bins of equal width."""
    if n_bins < 1:
        raise InputError(f"n_bins must be at least 1; it is {n_bins}")
    confidence, correct = _confidence_and_correct(probs, labels)
    # Each k / n_bins rounded once, so that a confidence of 0.3 is on an edge: linspace(0, 1, 11)[3] is not 0.3.
    edges = np.arange(n_bins + 1) / n_bins
    index = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, n_bins - 1)
    count = np.bincount(index, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(index, confidence, n_bins) / count
        return ReliabilityBins(edges, count, mean_confidence, np.bincount(index, correct, n_bins) / count)


def batch_accuracy(per_episode: ArrayOrTensor) -> Interval:
    """Mean of accuracies [batches, episodes] with its 95 % interval, and the standard deviation that the paper reports.

    That is the standard deviation of the batch means, divided by their number (not one less); NaN for one batch.
    """
    values = finite_array("per-episode accuracies", per_episode, ndim=2)
    std = float(values.mean(1).std()) if len(values) > 1 else math.nan
    return replace(mean_interval(values.ravel()), std=std)


def mean_interval(values: ArrayOrTensor, level: float = 0.95) -> Interval:
    """Mean of values [n] with Student's interval."""
    x = finite_array("values", values, ndim=1)
    check_level(level)
    if len(x) == 1:
        return Interval(float(x[0]), level=level)
    mean = float(x.mean())
    half = float(stdtrit(len(x) - 1, (1 + level) / 2) * x.std(ddof=1) / np.sqrt(len(x)))
    return Interval(mean, mean - half, mean + half, level)


def bootstrap_interval(
    values: ArrayOrTensor, seed: int | np.random.Generator, n_resamples: int = 10_000, level: float = 0.95
) -> Interval:
    """Mean of values [n] with its percentile bootstrap interval."""
    x = finite_array("values", values, ndim=1)
    check_level(level)
    if n_resamples < 1:
        raise InputError(f"n_resamples must be at least 1; it is {n_resamples}")
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // len(x))
    means = [
        x[rng.integers(len(x), size=(min(rows, n_resamples - done), len(x)))].mean(1)
        for done in range(0, n_resamples, rows)
    ]
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(x.mean()), float(low), float(high), level)


def auroc(scores: ArrayOrTensor, is_outside: ArrayOrTensor) -> float:
    """Probability that an outside example scores above an inside one; ties count half. Both arguments are [n]."""
    s, outside = check_scores(scores, is_outside, ndim=1)
    return float(_auroc(s[None], outside[None])[0])


def auroc_per_episode(scores: ArrayOrTensor, is_outside: ArrayOrTensor) -> Float[np.ndarray, " episodes"]:
    """`auroc` of each row of scores [episodes, queries]; each row must have examples of both kinds."""
    return _auroc(*check_scores(scores, is_outside, ndim=2))


def roc_curve(scores: ArrayOrTensor, is_outside: ArrayOrTensor) -> RocCurve:
    """ROC curve for detecting outside examples: one point per distinct score of [n], from the highest down."""
    s, outside = check_scores(scores, is_outside, ndim=1)
    threshold, above, hits = _totals_from_the_top(s, outside)
    false, true = (above - hits) / (~outside).sum(), hits / outside.sum()
    return RocCurve(np.append(0.0, false), np.append(0.0, true), np.append(np.inf, threshold))


def risk_coverage(confidence: ArrayOrTensor, correct: ArrayOrTensor) -> RiskCoverage:
    """Accuracy against the share answered, most confident first; confidence [n], and correct [n] of True and False."""
    c, right = check_flags("confidence", confidence, "correct", correct, ndim=1)
    threshold, answered, hits = _totals_from_the_top(c, right)
    every = np.arange(1, len(c) + 1)
    area = np.interp(every, np.append(0, answered), np.append(0, hits)) / every
    return RiskCoverage(answered / len(c), hits / answered, threshold, float(area.mean()))


def _confidence_and_correct(
    probs: ArrayOrTensor, labels: ArrayOrTensor
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    p, y = check_probs(probs, labels)
    predicted = p.argmax(1)
    return p[np.arange(len(y)), predicted], predicted == y


def _auroc(s: npt.NDArray[np.float64], outside: npt.NDArray[np.bool_]) -> Float[np.ndarray, " episodes"]:
    """Mann and Whitney's U from ranks: equal scores share the mean of their ranks."""
    order = s.argsort(-1)
    s, outside = np.take_along_axis(s, order, -1), np.take_along_axis(outside, order, -1)
    position = np.arange(s.shape[-1])
    rises = s[:, 1:] > s[:, :-1]
    first = np.maximum.accumulate(np.where(np.pad(rises, ((0, 0), (1, 0))), position, 0), -1)
    last_or_end = np.where(np.pad(rises, ((0, 0), (0, 1))), position, position[-1])
    last = np.minimum.accumulate(last_or_end[:, ::-1], -1)[:, ::-1]
    n_outside = outside.sum(-1)
    # Ranks from 0, doubled to stay whole: the sum is exact.
    u = ((first + last) * outside).sum(-1) / 2 - n_outside * (n_outside - 1) / 2
    area: npt.NDArray[np.float64] = u / (n_outside * (s.shape[-1] - n_outside))
    return area


def _totals_from_the_top(
    values: npt.NDArray[np.float64], flags: npt.NDArray[np.bool_]
) -> tuple[Float[np.ndarray, " k"], Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
    """The distinct values in falling order; how many are at least as large; and how many of those are flagged."""
    order = (-values).argsort(kind="stable")
    values, hits = values[order], flags[order].cumsum()
    last = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)
    return values[last], last + 1, hits[last]
