"""The tables of the lab notes: every measure, paired differences, temperatures, seeds."""

import math

import numpy as np

from paper.tables import (
    CALIBRATION,
    FEWEST,
    FOURTEEN,
    RESULTS,
    SEEDS,
    in_paper,
    label,
    largest_gap,
    markdown,
    number,
    papers,
    runs_of,
    shown,
)
from polyshot.evaluation.metrics import mean_interval
from polyshot.evaluation.results import Result, find_results

METHODS = (*FOURTEEN[:12], "ove-ml-prior", "ove-ml", "ove-pl-paper", "ove-pl", "ove-pl-rbf", "ove-pl-cosine-rbf")
DIFFERENCES = (
    ("accuracy", "accuracy"), ("brier", "accuracy"), ("log_likelihood", "accuracy"), ("auroc", "out-of-episode"),
)  # fmt: skip


def with_another_seed(place: str) -> tuple[str, ...]:
    """The runs that were trained with two seeds, both of each."""
    twice = [run for run in METHODS if runs_of(place, (f"{run}-seed-1",))]
    return tuple(name for run in twice for name in (run, f"{run}-seed-1"))


def reference(run: str) -> str:
    """The `ove-pl` that a run is compared with: of the same seed."""
    return "ove-pl-seed-1" if run.endswith("-seed-1") else "ove-pl"


def paired(result: Result, ours: Result, measure: str) -> str:
    """A result less ours, episode by episode: mean and Student's 95 % interval; accuracies in points."""
    factor, digits = (100.0, 2) if measure == "accuracy" else (1.0, 3)
    first, second = (r.episodes[measure].astype(np.float64) for r in (result, ours))
    d = mean_interval(factor * (first - second))
    return f"{d.estimate:+.{digits}f} [{d.low:+.{digits}f}, {d.high:+.{digits}f}]"


def all_measures(place: str, names: tuple[str, ...] = METHODS) -> str:
    """Accuracy beside the paper's, calibration, detection, time."""
    nearest = in_paper(place)
    head = ["", "accuracy, %", *(["paper's, %"] if nearest else [])]
    head += ["ECE", "MCE", f"MCE, {FEWEST}+", "Brier", "log-likelihood"]
    head += ["AUROC, -max logit", "entropy", "variance", "trained, min"]
    rows = []
    for run, by in runs_of(place, names).items():
        accuracy, outside = by["accuracy"], by.get("out-of-episode")
        row = [label(run, by), f"{number(accuracy, 'accuracy')} ± {100 * accuracy.summary['accuracy'].std:.2f}"]
        row += [papers(accuracy, nearest, "accuracy")] if nearest else []
        ece, mce, *scores = (number(accuracy, m) for m in CALIBRATION)
        row += [ece, mce, shown(largest_gap(accuracy), "mce"), *scores]
        row += [number(outside, m) for m in ("auroc", "auroc_entropy", "auroc_variance")]
        rows.append([*row, minutes(accuracy)])
    return markdown(head, rows)


def temperatures(place: str) -> str:
    """Calibration with a temperature that was fitted on validation episodes."""
    head = ["", "temperature", "ECE", "MCE", "Brier", "log-likelihood"]
    rows = []
    for run, by in runs_of(place, METHODS).items():
        scaled = by.get("accuracy-temperature")
        if scaled is not None and scaled.temperature is not None:
            row = [label(run, by), f"{scaled.temperature.value:.2f}"]
            rows.append([*row, *(number(scaled, m) for m in CALIBRATION)])
    return markdown(head, rows)


def asked_at_one_shot(place: str) -> str:
    """Runs that were trained on five shots and no others."""
    head = ["", "accuracy, %", "ECE", "MCE", "Brier", "log-likelihood"]
    rows = []
    for run, by in runs_of(f"{place}/5-shot", METHODS).items():
        result = find_results([RESULTS / place / "5-shot-at-1-shot" / run / "accuracy.json"])[0]
        rows.append([label(run, by), *(number(result, m) for m in ("accuracy", *CALIBRATION))])
    return markdown(head, rows)


def corruption_differences(place: str) -> str:
    """Each corruption at its greatest severity, both seeds; paired differences to `ove-pl` of the same seed."""
    runs = runs_of(place, tuple(f"{run}{seed}" for run in METHODS for seed in SEEDS[:2]))
    nearest = in_paper(place)
    head = ["", "accuracy, %", "paper's, %", "ECE", "Brier", "paper's"]
    head += [f"{measure} minus `ove-pl`" for measure in ("accuracy", "Brier")]
    rows = []
    for name in sorted(name for name in runs["ove-pl"] if name.startswith("corruption")):
        corruption = runs["ove-pl"][name].settings.corruption or ""
        rows.append([f"**{corruption.replace('_', ' ')}**", *[""] * (len(head) - 1)])
        for run, by in runs.items():
            result, table = by[name], f"corruption:{corruption}"
            ours = reference(run)
            row = [label(run, by), number(result, "accuracy"), papers(result, nearest, "accuracy", table)]
            row += [number(result, "ece"), number(result, "brier"), papers(result, nearest, "brier", table)]
            row += [paired(result, runs[ours][name], m) if run != ours else "" for m in ("accuracy", "brier")]
            rows.append(row)
    return markdown(head, rows)


def differences(place: str, names: tuple[str, ...] = METHODS) -> str:
    """Every run less `ove-pl` of the same seed."""
    runs = runs_of(place, names)
    rows = [
        [label(run, by), *(paired(by[file], runs[reference(run)][file], measure) for measure, file in DIFFERENCES)]
        for run, by in runs.items()
        if run != reference(run)
    ]
    return markdown(["minus `ove-pl`", "accuracy, points", "Brier", "log-likelihood", "AUROC, -max logit"], rows)


def minutes(result: Result) -> str:
    """Processor time of the training."""
    return "-" if math.isnan(result.training_seconds) else f"{result.training_seconds / 60:.0f}"


TABLES = {
    "methods": all_measures,
    "temperatures": temperatures,
    "differences": differences,
    "at-1-shot": asked_at_one_shot,
    "corruption-differences": corruption_differences,
    "seeds": lambda place: all_measures(place, with_another_seed(place)),
    "seed-differences": lambda place: differences(place, with_another_seed(place)[1::2]),
}
