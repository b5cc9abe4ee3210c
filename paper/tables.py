"""The tables of the paper's benchmarks, made of the committed results, and what they share with those of the lab notes.

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
BENCHMARK = (
    *FOURTEEN[:7], "dkt-paper", *FOURTEEN[7:12], "cdkt-ml", "cdkt-pl", "ove-ml-paper", "ove-ml-paper-rbf", "ove-ml",
    "ove-ml-rbf", "ove-ml-linear", "ove-ml-normalized-rbf", "ove-pl-paper", "ove-pl-paper-rbf", "ove-pl-propagation",
    "ove-pl-score", "ove-pl", "ove-pl-rbf", "ove-pl-linear", "ove-pl-normalized-rbf", "ove-pl-cosine-rbf",
    "protonet-rotations", "dkt-rotations", "ove-pl-rotations", "ove-pl-rbf-rotations",
)  # fmt: skip
HEADLINE = (*FOURTEEN, "ove-pl-rbf", "ove-pl-cosine-rbf")
SEEDS = ("", "-seed-1", "-seed-2")
# what the paper has that is most like ours, if not the same
NEAREST = {"omniglot-to-chars74k": "omniglot-to-emnist", "cub-short": "cub"}
CALIBRATION = ("ece", "mce", "brier", "log_likelihood")
FEWEST = 100  # queries of a bin whose accuracy is not mere chance

Runs = dict[str, dict[str, Result]]


@cache
def results_of(folder: Path) -> dict[str, Result]:
    """The results of a run by the name of their file, read once."""
    return {Path(r.path or "").stem: r for r in find_results([folder])}


def runs_of(place: str, names: tuple[str, ...]) -> Runs:
    """The finished runs of a folder, in this order: results by the name of their file."""
    return {name: results_of(RESULTS / place / name) for name in names if (RESULTS / place / name).is_dir()}


def seeds_of(place: str, run: str) -> list[dict[str, Result]]:
    """The results of a run and of those that differ from it by the training seed alone."""
    return list(runs_of(place, tuple(f"{run}{seed}" for seed in SEEDS)).values())


def label(run: str, by: dict[str, Result]) -> str:
    """The method's name in the paper, and what is not as in the other rows."""
    result = by["accuracy"]
    title = METHOD_CLASSES[result.method].short_title(result.options)
    if result.training.get("settings") == "paper":
        return f"{title}, the paper's settings"
    if "-paper" in run:  # it averages log-probabilities: so the paper's text, but not its code
        return f"{title}, the paper's text"
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
        if not (seeds := seeds_of(place, run)):
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


def detection(place: str) -> str:
    """AUROC of queries from other classes by every score of a method, averaged over training seeds."""
    head, rows = ["", "own score", "-max logit", "entropy", "variance"], []
    for run in BENCHMARK:
        if seeds := seeds_of(place, run):
            results = [by["out-of-episode"] for by in seeds]
            measures = ("auroc_own", "auroc", "auroc_entropy", "auroc_variance")
            rows.append([label(run, seeds[0]), *(over_seeds(results, measure) for measure in measures)])
    return markdown(head, rows)


def headline(place: str) -> str:
    """What a reader of the README wants to know, averaged over training seeds."""
    head = ["", "accuracy, %", "paper's, %", "ECE", "log-likelihood", "AUROC for other classes"]
    rows = []
    for run in HEADLINE:
        if seeds := seeds_of(place, run):
            accuracy = [by["accuracy"] for by in seeds]
            row = [label(run, seeds[0]), over_seeds(accuracy, "accuracy")]
            row += [papers(accuracy[0], in_paper(place), "accuracy")]
            row += [over_seeds(accuracy, m) for m in ("ece", "log_likelihood")]
            rows.append([*row, over_seeds([by["out-of-episode"] for by in seeds], "auroc_own")])
    return markdown(head, rows)


def ranks(place: str) -> str:
    """The paper's fourteen rows in the order of accuracy, there and here, for each number of shots."""
    nearest, labels = in_paper(place), [label(*pair) for pair in runs_of(f"{place}/5-shot", FOURTEEN).items()]
    head, columns, agreement = [""], [], ["Spearman's correlation"]
    for shots in (5, 1):
        rows = [[by["accuracy"] for by in seeds_of(f"{place}/{shots}-shot", run)] for run in FOURTEEN]
        theirs = rankdata([-float(papers(results[0], nearest, "accuracy")) for results in rows], "min")
        ours = rankdata([-np.mean([r.summary["accuracy"].estimate for r in results]) for results in rows], "min")
        head += [f"{shots}-shot: paper", "here"]
        columns += [theirs, ours]
        agreement += [f"{spearmanr(theirs, ours).statistic:.2f}", ""]
    rows = [[name, *(f"{rank:.0f}" for rank in line)] for name, *line in zip(labels, *columns, strict=True)]
    return markdown(head, [*rows, agreement])


TABLES = {"benchmark": benchmark, "detection": detection, "headline": headline, "ranks": ranks}


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table whose first column is text."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] + ["---:"] * (len(head) - 1), *rows])
