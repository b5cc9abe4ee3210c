"""Results as tables in the paper's form; the paper's own figures stand in columns of their own, headed as such."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from polyshot.data.scenarios import SCENARIOS
from polyshot.errors import InputError
from polyshot.evaluation.results import Result
from polyshot.report.groups import Task, task_of, value
from polyshot.report.published import (
    full_options,
    kernel_name,
    method_name,
    published_figure,
    published_scenarios,
    scenario_name,
)

METRIC_NAMES = {
    "accuracy": "Accuracy (%)",
    "brier": "Brier",
    "ece": "ECE",
    "mce": "MCE",
    "auroc": "AUROC, -max logit",
    "auroc_entropy": "AUROC, entropy",
    "auroc_variance": "AUROC, logit variance",
}
SMALLER_IS_BETTER = {"brier", "ece", "mce"}
_SOURCE = "Columns headed “paper” hold the figures published by Snell & Zemel (ICLR 2021), not ours."


@dataclass(frozen=True)
class Column:
    """`paper_scenario` is set where the figures are the paper's; if it is not the column's, the head says so."""

    task: Task
    metric: str
    paper_scenario: str | None = None

    @property
    def group(self) -> str:
        """The upper line of the head."""
        return scenario_name(self.task.scenario)

    def title(self, with_metric: bool) -> str:
        """The lower line of the head."""
        ways = f"{self.task.ways}-way " if self.task.ways != 5 else ""
        title = f"{ways}{self.task.shots}-shot" + (f" {METRIC_NAMES[self.metric]}" if with_metric else "")
        if self.paper_scenario is None:
            return title
        if self.paper_scenario == self.task.scenario:
            return f"{title}, paper"
        return f"{title}, paper on {scenario_name(self.paper_scenario)} (another data set)"


class Cell(NamedTuple):
    """A figure; `best` is of ours in the column."""

    value: float
    std: float | None
    low: float | None
    high: float | None
    episodes: int | None
    best: bool = False


Label: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows by label, one cell or None a column."""

    name: str
    title: str
    note: str
    head: Label
    columns: list[Column]
    rows: dict[Label, list[Cell | None]]

    @property
    def with_metric(self) -> bool:
        """Whether the columns differ in more than the place, so that their heads must say the metric."""
        return len({column.metric for column in self.columns}) > 1 or self.columns[0].metric != "accuracy"


def make_tables(results: Sequence[Result], published_for: str | None = None) -> list[Table]:
    """Every table of the paper that there are results for.

    `published_for` is a scenario of the paper whose figures are put beside those of scenarios that it has not.
    """
    if published_for is not None and published_for not in published_scenarios():
        raise InputError(
            f"the paper has no figures for {published_for!r}; it has {', '.join(sorted(published_scenarios()))}"
        )
    by_protocol: dict[str, list[Result]] = {"accuracy": [], "corruption": [], "out-of-episode": []}
    for result in results:
        by_protocol.setdefault(result.protocol, []).append(result)
    accuracy = by_protocol["accuracy"]
    plain = [r for r in accuracy if r.temperature is None]  # a temperature leaves accuracy as it is
    ove = [r for r in plain if r.method == "ove-gp"]
    several_kernels = len({_options(r)["kernel"] for r in ove}) > 1
    std = "± is the standard deviation of the batches' means."
    tables = []
    for crossing, number, kind in ((False, 2, "Accuracy"), (True, 3, "Cross-domain accuracy")):
        name = "cross-domain" if crossing else "accuracy"
        title = f"{kind} in per cent (the paper's Table {number})"
        some = [r for r in plain if _crosses(r.scenario) == crossing]
        tables.append(_table(name, title, std, some, ("accuracy",), published_for, "accuracy"))
        some = [r for r in ove if _crosses(r.scenario) == crossing and several_kernels]
        title = f"{kind} of the OVE PG GP by kernel, in per cent (Appendix C)"
        tables.append(
            _table(f"{name}-kernels", title, std, some, ("accuracy",), published_for, "accuracy", _kernel_label)
        )
    for corruption, severity in sorted(
        {(r.settings["corruption"], r.settings["severity"]) for r in by_protocol["corruption"]}
    ):
        some = [r for r in by_protocol["corruption"] if r.settings["corruption"] == corruption]
        some = [r for r in some if r.settings["severity"] == severity]
        title = f"{corruption.replace('_', ' ').capitalize()}, severity {severity}, on support and query"
        table = f"corruption:{corruption}" if severity == 5 else None
        name = f"corruption-{corruption}-{severity}"
        tables.append(_table(name, title, "", some, ("accuracy", "brier"), published_for, table))
    note = "15 bins of equal width; smaller is better."
    tables.append(_table("calibration", "Calibration", note, accuracy, ("ece", "mce", "brier")))
    note = "Mean AUROC of an episode with its 95 % bootstrap interval, by each score for “none of these classes”."
    by_score = ("auroc", "auroc_entropy", "auroc_variance")
    outside = by_protocol["out-of-episode"]
    tables.append(_table("out-of-episode", "Out-of-episode detection", note, outside, by_score))
    return [table for table in tables if table.rows]


def method_label(result: Result) -> Label:
    """The paper's name, with kernel and objective, and whatever else is not the default."""
    options, defaults = _options(result), full_options(result.method, {})
    name = method_name(result.method)
    if "kernel" in options:
        name += f" + {kernel_name(result.method, options['kernel'])}"
    if "objective" in options:
        name += f" ({options['objective'].upper()})"
    other = [f"{k} {v}" for k, v in options.items() if k not in ("kernel", "objective") and v != defaults.get(k)]
    return (", ".join([name, *other, *(["temperature scaled"] if result.temperature else [])]),)


def _kernel_label(result: Result) -> Label:
    options = _options(result)
    return kernel_name(result.method, options["kernel"]), options["objective"].upper()


def _options(result: Result) -> dict[str, Any]:
    return full_options(result.method, result.options)


def _crosses(scenario: str) -> bool:
    sources = SCENARIOS.get(scenario)
    return sources is not None and sources[0].dataset != sources[2].dataset


def _table(
    name: str,
    title: str,
    note: str,
    results: Sequence[Result],
    metrics: Sequence[str],
    published_for: str | None = None,
    published_table: str | None = None,
    label_of: Callable[[Result], Label] = method_label,
) -> Table:
    head = ("Kernel", "Objective") if label_of is _kernel_label else ("Method",)
    labels = _unique_labels(results, label_of)
    columns: list[Column] = []
    cells: dict[tuple[Label, Column], Cell] = {}
    for task in sorted({task_of(r) for r in results}):
        here = [(label, r) for label, r in zip(labels, results, strict=True) if task_of(r) == task]
        for metric in metrics:
            known = [(label, r) for label, r in here if metric in r.summary]
            if not known:
                continue
            ours = Column(task, metric)
            columns.append(ours)
            best = (min if metric in SMALLER_IS_BETTER else max)(value(r, metric) for _, r in known)
            for label, r in known:
                cells[label, ours] = _cell(r, metric, best)
            scenario = task.scenario if task.scenario in published_scenarios() else published_for
            if scenario is None or published_table is None or task.ways != 5:
                continue
            paper = Column(task, metric, scenario)
            for label, r in here:
                figure = published_figure(published_table, scenario, task.shots, r.method, r.options, metric)
                if figure is not None and r.temperature is None:
                    cells[label, paper] = Cell(*figure, None, None, None)
                    columns += [paper] * (paper not in columns)
    sizes = sorted({(r.settings["batches"], r.settings["episodes"]) for r in results})
    episodes = ", ".join(f"{n} x {k:,}" if n > 1 else f"{k:,}" for n, k in sizes)
    parts = [f"{episodes} episodes.", note, _SOURCE if any(c.paper_scenario for c in columns) else ""]
    rows = {
        label: [cells.get((label, column)) for column in columns] for label in sorted(set(labels), key=labels.index)
    }
    return Table(name, title, " ".join(part for part in parts if part), head, columns, rows)


def _unique_labels(results: Sequence[Result], label_of: Callable[[Result], Label]) -> list[Label]:
    """Two runs of one label in one column are told apart by their names."""
    labels = [label_of(r) for r in results]
    count = Counter((label, task_of(r)) for label, r in zip(labels, results, strict=True))
    clashing = {label for (label, _), n in count.items() if n > 1}
    labels = [
        (f"{label[0]} [{r.run}]", *label[1:]) if label in clashing else label
        for label, r in zip(labels, results, strict=True)
    ]
    count = Counter((label, task_of(r)) for label, r in zip(labels, results, strict=True))
    if twice := [label[0] for (label, _), n in count.items() if n > 1]:
        raise InputError(f"two results of one kind for {twice[0]}; name one of them only, or rename a run folder")
    return labels


def _cell(result: Result, metric: str, best: float) -> Cell:
    summary, own = result.summary[metric], value(result, metric)
    episodes = result.settings["batches"] * result.settings["episodes"]
    return Cell(own, summary.get("std"), summary["low"], summary["high"], episodes, own == best)
