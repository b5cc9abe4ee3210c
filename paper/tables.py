"""The tables of the results pages, made of the committed results.

`TABLES` lists the kinds of table; each is a function of PLACE, a folder of paper/results. `paper.page` writes them
into the pages. A run NAME that was trained with further seeds has NAME-seed-1 and so on beside it.
"""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, spearmanr

from polyshot.evaluation.measures import MEASURES
from polyshot.evaluation.metrics import mean_interval
from polyshot.evaluation.results import Result, find_results
from polyshot.methods import METHODS as METHOD_CLASSES
from polyshot.report.published import published_figure, published_scenarios
from polyshot.report.titles import method_label

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "paper" / "results"
FOURTEEN = (
    "feature-transfer", "baseline++", "matchingnet", "protonet", "relationnet", "maml", "dkt", "bayesian-maml",
    "bayesian-maml-chaser", "abml", "logistic-softmax-ml", "logistic-softmax-pl", "ove-ml", "ove-pl",
)  # fmt: skip
METHODS = (*FOURTEEN[:12], "ove-ml-prior", "ove-ml", "ove-pl-paper", "ove-pl", "ove-pl-rbf")
BENCHMARK = (
    *FOURTEEN[:12], "cdkt-ml", "cdkt-ml-sharp", "cdkt-pl", "cdkt-pl-sharp", "ove-ml-paper", "ove-ml-paper-rbf",
    "ove-ml", "ove-ml-rbf", "ove-pl-paper", "ove-pl-paper-rbf", "ove-pl-propagation", "ove-pl-score",
    "ove-pl", "ove-pl-rbf", "protonet-rotations", "dkt-rotations", "ove-pl-rotations", "ove-pl-rbf-rotations",
)  # fmt: skip
KERNELS = tuple(
    f"ove-{o}{kernel}" for kernel in ("", "-linear", "-rbf", "-normalized-rbf") for o in ("ml-prior", "ml", "pl")
)
SEEDS = ("", "-seed-1", "-seed-2")
# what the paper has that is most like ours, if not the same
NEAREST = {"omniglot-to-chars74k": "omniglot-to-emnist", "cub-short": "cub"}
DIFFERENCES = (
    ("accuracy", "accuracy"), ("brier", "accuracy"), ("log_likelihood", "accuracy"), ("auroc", "out-of-episode"),
)  # fmt: skip
CALIBRATION = ("ece", "mce", "brier", "log_likelihood")
FEWEST = 100  # queries of a bin whose accuracy is not mere chance

Runs = dict[str, dict[str, Result]]


@cache
def results_of(folder: Path) -> dict[str, Result]:
    """The results of a run by the name of their file, read once."""
    return {Path(r.path or "").stem: r for r in find_results([folder])}


def runs_of(place: str, names: tuple[str, ...] = METHODS) -> Runs:
    """The finished runs of a folder, in this order: results by the name of their file."""
    return {name: results_of(RESULTS / place / name) for name in names if (RESULTS / place / name).is_dir()}


def with_another_seed(place: str) -> tuple[str, ...]:
    """The runs that were trained with two seeds, both of each."""
    twice = [run for run in METHODS if runs_of(place, (f"{run}-seed-1",))]
    return tuple(name for run in twice for name in (run, f"{run}-seed-1"))


def reference(run: str) -> str:
    """The `ove-pl` that a run is compared with: of the same seed."""
    return "ove-pl-seed-1" if run.endswith("-seed-1") else "ove-pl"


def label(run: str, by: dict[str, Result]) -> str:
    """The method's name in the paper, and what is not as in the other rows."""
    result = by["accuracy"]
    if "-paper" in run:  # runs without `settings` average log-probabilities: so the paper's text, but not its code
        whose = "the paper's settings" if result.training.get("settings") == "paper" else "the paper's text"
        return f"{METHOD_CLASSES[result.method].short_title(result.options)}, {whose}"
    rotated = ", rotated characters too" if result.training.get("rotations") else ""
    return method_label(result) + rotated + (f", seed {result.seed}" if result.seed else "")


def shown(value: float, measure: str) -> str:
    """A figure, or a dash where there is none."""
    return "-" if math.isnan(value) else MEASURES[measure].text(value)


def number(result: Result | None, measure: str) -> str:
    """A figure of a result."""
    known = result is not None and measure in result.summary
    return shown(result.summary[measure].estimate if result and known else math.nan, measure)


def largest_gap(result: Result) -> float:
    """MCE over the bins of at least FEWEST queries."""
    bins = result.reliability
    assert bins is not None, f"{result.path} lacks its reliability bins"
    filled = bins.count >= FEWEST
    return float(np.abs(bins.accuracy - bins.confidence)[filled].max())


def in_paper(place: str) -> str:
    """The paper's scenario whose figures stand beside ours; empty if there is none."""
    scenario = place.split("/")[0]
    scenario = NEAREST.get(scenario, scenario)
    return scenario if scenario in published_scenarios() else ""


def papers(result: Result, nearest: str, measure: str, table: str = "accuracy") -> str:
    """What the paper published for this row."""
    figure = published_figure(table, nearest, result.settings.shots, result.method, result.options, measure)
    return shown(figure.value if figure else math.nan, measure)


def paired(result: Result, ours: Result, measure: str) -> str:
    """A result less ours, episode by episode: mean and Student's 95 % interval; accuracies in points."""
    factor, digits = (100.0, 2) if measure == "accuracy" else (1.0, 3)
    first, second = (r.episodes[measure].astype(np.float64) for r in (result, ours))
    d = mean_interval(factor * (first - second))
    return f"{d.estimate:+.{digits}f} [{d.low:+.{digits}f}, {d.high:+.{digits}f}]"


def over_seeds(results: Sequence[Result | None], measure: str) -> str:
    """The mean of a figure over training seeds."""
    known = [r.summary[measure].estimate for r in results if r is not None and measure in r.summary]
    return shown(float(np.mean(known)) if known else math.nan, measure)


def spread(results: Sequence[Result]) -> str:
    """The lowest and the highest accuracy of the seeds; a dash for a single one."""
    accuracies = [r.summary["accuracy"].estimate for r in results]
    return f"{shown(min(accuracies), 'accuracy')} to {shown(max(accuracies), 'accuracy')}" if accuracies[1:] else "-"


def benchmark(place: str) -> str:
    """The paper's table: one row per method, averaged over its training seeds."""
    head = ["", "accuracy, %", "paper's, %", "seeds", "lowest to highest, %", "ECE", f"MCE, {FEWEST}+", "Brier"]
    head += ["log-likelihood", "AUROC", "AUROC, -max logit", "trained, min"]
    nearest, rows = in_paper(place), []
    for run in BENCHMARK:
        seeds = list(runs_of(place, tuple(f"{run}{seed}" for seed in SEEDS)).values())
        if not seeds:
            continue
        accuracy, outside = [by["accuracy"] for by in seeds], [by.get("out-of-episode") for by in seeds]
        std = float(np.mean([100 * r.summary["accuracy"].std for r in accuracy]))
        gap = float(np.mean([largest_gap(r) for r in accuracy]))
        minutes = float(np.mean([r.training_seconds / 60 for r in accuracy]))
        row = [label(run, seeds[0]), f"{over_seeds(accuracy, 'accuracy')} ± {std:.2f}"]
        row += [papers(accuracy[0], nearest, "accuracy"), str(len(seeds)), spread(accuracy)]
        row += [over_seeds(accuracy, "ece"), shown(gap, "mce")]
        row += [over_seeds(accuracy, m) for m in ("brier", "log_likelihood")]
        rows.append([*row, *(over_seeds(outside, m) for m in ("auroc_own", "auroc")), f"{minutes:.0f}"])
    return markdown(head, rows)


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


def headline(place: str) -> str:
    """What a reader of the README wants to know."""
    head = ["", "accuracy, %", "paper's on EMNIST, %", "ECE", "log-likelihood", "AUROC for other classes"]
    rows = []
    for run, by in runs_of(place).items():
        row = [label(run, by), number(by["accuracy"], "accuracy"), papers(by["accuracy"], in_paper(place), "accuracy")]
        row += [number(by["accuracy"], m) for m in ("ece", "log_likelihood")]
        rows.append([*row, number(by.get("out-of-episode"), "auroc")])
    return markdown(head, rows)


def ranks(place: str) -> str:
    """The paper's fourteen rows in the order of accuracy, there and here, for each number of shots."""
    nearest, labels = in_paper(place), [label(*pair) for pair in runs_of(f"{place}/5-shot", FOURTEEN).items()]
    head, columns, agreement = [""], [], ["Spearman's correlation"]
    for shots in (5, 1):
        results = [by["accuracy"] for by in runs_of(f"{place}/{shots}-shot", FOURTEEN).values()]
        theirs = rankdata([-float(papers(result, nearest, "accuracy")) for result in results], "min")
        ours = rankdata([-result.summary["accuracy"].estimate for result in results], "min")
        head += [f"{shots}-shot: paper", "here"]
        columns += [theirs, ours]
        agreement += [f"{spearmanr(theirs, ours).statistic:.2f}", ""]
    rows = [[name, *(f"{rank:.0f}" for rank in line)] for name, *line in zip(labels, *columns, strict=True)]
    return markdown(head, [*rows, agreement])


def temperatures(place: str) -> str:
    """Calibration with a temperature that was fitted on validation episodes."""
    head = ["", "temperature", "ECE", "MCE", "Brier", "log-likelihood"]
    rows = []
    for run, by in runs_of(place).items():
        scaled = by.get("accuracy-temperature")
        if scaled is not None and scaled.temperature is not None:
            row = [label(run, by), f"{scaled.temperature.value:.2f}"]
            rows.append([*row, *(number(scaled, m) for m in CALIBRATION)])
    return markdown(head, rows)


def side_by_side(first: tuple[str, str], second: tuple[str, str]) -> str:
    """The runs of two places, each (title, place), on the same episodes; the second has results of accuracy alone."""
    head = [f"{title}: {m}" for title, _ in (first, second) for m in ("accuracy, %", "ECE", "log-likelihood")]
    rows = []
    for run, by in runs_of(first[1]).items():
        if (file := RESULTS / second[1] / run / "accuracy.json").is_file():
            both = by["accuracy"], find_results([file])[0]
            row = [number(result, m) for result in both for m in ("accuracy", "ece", "log_likelihood")]
            rows.append([label(run, by), *row])
    return markdown(["", *head], rows)


def asked_at_one_shot(place: str) -> str:
    """Runs that were trained on five shots and no others."""
    head = ["", "accuracy, %", "ECE", "MCE", "Brier", "log-likelihood"]
    rows = []
    for run, by in runs_of(f"{place}/5-shot").items():
        result = find_results([RESULTS / place / "5-shot-at-1-shot" / run / "accuracy.json"])[0]
        rows.append([label(run, by), *(number(result, m) for m in ("accuracy", *CALIBRATION))])
    return markdown(head, rows)


def corruptions(place: str) -> str:
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


TABLES = {
    "benchmark": benchmark,
    "methods": all_measures,
    "headline": headline,
    "ranks": ranks,
    "temperatures": temperatures,
    "differences": differences,
    "kernels": lambda place: all_measures(place, KERNELS),
    "kernel-differences": lambda place: differences(place, KERNELS),
    "trained-on-more": lambda place: side_by_side(
        ("1 shot", f"{place}/1-shot"), ("5 shots", f"{place}/5-shot-at-1-shot")
    ),
    "other-machine": lambda place: side_by_side(("main table", place), ("other machine", f"{place}-other-machine")),
    "at-1-shot": asked_at_one_shot,
    "corruptions": corruptions,
    "seeds": lambda place: all_measures(place, with_another_seed(place)),
    "seed-differences": lambda place: differences(place, with_another_seed(place)[1::2]),
}


def minutes(result: Result) -> str:
    """Processor time of the training."""
    return "-" if math.isnan(result.training_seconds) else f"{result.training_seconds / 60:.0f}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table whose first column is text."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] + ["---:"] * (len(head) - 1), *rows])
