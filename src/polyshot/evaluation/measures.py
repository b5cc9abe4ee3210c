"""Every measure of a prediction's quality, in one table: what it is called, what it means, how it is computed.

A new measure is one entry. It then appears in result files, in the output of `polyshot evaluate`, in tables and in the
report. From a module that `--plugin` names, or an installed package with the entry point "polyshot.measures":

    MEASURES.register("top2", Measure("top2", "Top-2 accuracy", "share of queries whose class is among the two most "
                                      "probable", compute=top2, percent=True))

`compute` takes natural log-probabilities [n, C] and labels [n], either of one episode or of all episodes together. An
`OutlierMeasure` ranks the queries of out-of-episode tasks by a score that should be high for unknown classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from polyshot.evaluation.metrics import (
    Interval,
    accuracy,
    batch_accuracy,
    bootstrap_interval,
    brier_score,
    expected_calibration_error,
    log_likelihood_of_logs,
    maximum_calibration_error,
    mean_interval,
)
from polyshot.system.registry import Registry

N_BINS = 15  # the paper's number, for calibration

LogProbs: TypeAlias = Float[np.ndarray, "n c"]
Labels: TypeAlias = Int[np.ndarray, " n"]
PerEpisode: TypeAlias = Float[np.ndarray, "batches episodes"]


class Predictions(NamedTuple):
    """What a method predicted for all episodes of a protocol, batch after batch.

    Attributes
    ----------
    log_probs, scores : array [episodes, Q, C]
        Log-probabilities, and scores (posterior mean logits) of the classes.
    labels : array [Q]
        True classes, the same for all episodes; `OUTSIDE` for queries of unknown classes.
    variance : array [episodes, Q], optional
        Posterior variance of the logits, averaged over the classes.
    outlier : array [episodes, Q], optional
        The method's own score for "none of these classes".
    seconds : float
        Computing time of all processes together.
    """

    log_probs: Float[np.ndarray, "episodes q c"]
    scores: Float[np.ndarray, "episodes q c"]
    labels: Int[np.ndarray, " q"]
    variance: Float[np.ndarray, "episodes q"] | None = None
    outlier: Float[np.ndarray, "episodes q"] | None = None
    seconds: float = 0.0


def over_episodes(values: PerEpisode) -> Interval:
    """Mean over all episodes with Student's 95 % interval."""
    return mean_interval(values.ravel())


def bootstrapped(values: PerEpisode) -> Interval:
    """Mean over all episodes with its 95 % bootstrap interval."""
    return bootstrap_interval(values.ravel(), seed=0)


def _minus_largest(predictions: Predictions) -> Float[np.ndarray, "episodes q"]:
    largest: Float[np.ndarray, "episodes q"] = predictions.scores.max(-1)
    return -largest


def _no_computation(log_probs: LogProbs, labels: Labels) -> float:
    raise NotImplementedError("this measure is known from result files only")


def _no_score(predictions: Predictions) -> None:
    return None


@dataclass(frozen=True)
class Measure:
    """One measure.

    Attributes
    ----------
    name : str
        In result files and Python.
    title : str
        For people.
    meaning : str
        One line that explains it.
    compute : callable
        (log_probs [n, C], labels [n]) -> float.
    per_episode : bool
        Whether it is computed for each episode and averaged; otherwise once, over the queries of all episodes, and
        then there is no interval.
    interval : callable
        The mean of per-episode values [batches, episodes] with its interval.
    higher_is_better : bool
    percent : bool
        Whether it is shown in per cent.
    headline : bool
        Whether it is in the first table of a report.
    """

    name: str
    title: str
    meaning: str = ""
    compute: Callable[[LogProbs, Labels], float] = _no_computation
    per_episode: bool = True
    interval: Callable[[PerEpisode], Interval] = over_episodes
    higher_is_better: bool = True
    percent: bool = False
    headline: bool = True

    @property
    def heading(self) -> str:
        """Title with its unit, for the head of a table."""
        return f"{self.title} (%)" if self.percent else self.title

    def text(self, value: float, digits: int | None = None, *, sign: bool = False) -> str:
        """Format a value: per cent with two digits after the point, or a plain number with three."""
        scale, usual = (100.0, 2) if self.percent else (1.0, 3)
        return f"{scale * value:{'+' if sign else ''}.{usual if digits is None else digits}f}"


@dataclass(frozen=True)
class OutlierMeasure(Measure):
    """AUROC of finding queries of unknown classes by a score.

    Attributes
    ----------
    score : callable
        Predictions -> array [episodes, Q], higher for stranger queries; None for methods that lack it. It is given
        temperature-scaled log-probabilities where there is a temperature.
    score_title : str
        What the score is, for axes and sentences.
    """

    interval: Callable[[PerEpisode], Interval] = bootstrapped
    score: Callable[[Predictions], Float[np.ndarray, "episodes q"] | None] = _no_score
    score_title: str = ""


def _calibration(function: Callable[..., float]) -> Callable[[LogProbs, Labels], float]:
    return lambda log_probs, labels: function(np.exp(log_probs), labels, N_BINS)


_ALL = (
    Measure(
        "accuracy",
        "Accuracy",
        "share of queries assigned to the right class",
        compute=lambda log_probs, labels: accuracy(np.exp(log_probs), labels),
        interval=batch_accuracy,
        percent=True,
    ),
    Measure(
        "ece",
        "ECE",
        "expected calibration error: mean distance between stated confidence and the share that is right; 0 is best",
        compute=_calibration(expected_calibration_error),
        per_episode=False,
        higher_is_better=False,
    ),
    Measure(
        "mce",
        "MCE",
        "maximum calibration error: the largest such distance of any confidence bin",
        compute=_calibration(maximum_calibration_error),
        per_episode=False,
        higher_is_better=False,
        headline=False,
    ),
    Measure(
        "brier",
        "Brier",
        "squared error of the probabilities: 0 is certain and right, 2 is certain and wrong",
        compute=lambda log_probs, labels: brier_score(np.exp(log_probs), labels),
        higher_is_better=False,
    ),
    Measure(
        "log_likelihood",
        "Log-likelihood",
        "mean log-probability of the true class: 0 is best, confident errors cost most",
        compute=log_likelihood_of_logs,
    ),
    OutlierMeasure(
        "auroc_own",
        "AUROC",
        "how often a query of an unknown class scores higher than one of a known class, by the method's own score or, "
        "if it has none, by minus its largest logit; 0.5 is guessing",
        score=lambda predictions: _minus_largest(predictions) if predictions.outlier is None else predictions.outlier,
        score_title="the method's own score",
    ),
    OutlierMeasure(
        "auroc",
        "AUROC, -max logit",
        "the same by minus the largest logit, the paper's score",
        score=_minus_largest,
        score_title="minus the largest logit",
        headline=False,
    ),
    OutlierMeasure(
        "auroc_entropy",
        "AUROC, entropy",
        "the same by the entropy of the class probabilities, the total predictive uncertainty",
        score=lambda predictions: -(np.exp(predictions.log_probs) * predictions.log_probs).sum(-1),
        score_title="entropy",
        headline=False,
    ),
    OutlierMeasure(
        "auroc_variance",
        "AUROC, logit variance",
        "the same by the posterior variance of the logits, for methods that have one",
        score=lambda predictions: predictions.variance,
        score_title="variance of the logits",
        headline=False,
    ),
)
MEASURES: Registry[Measure] = Registry("measure", {m.name: m for m in _ALL}, group="polyshot.measures")


def measure_of(name: str) -> Measure:
    """The measure of that name; one that is not registered here (a plugin's) goes by its plain name."""
    return MEASURES[name] if name in MEASURES else Measure(name, name.replace("_", " "), headline=False)


def outlier_measures() -> list[OutlierMeasure]:
    """All measures of out-of-episode detection."""
    return [measure for measure in MEASURES.values() if isinstance(measure, OutlierMeasure)]
