"""Results as tables in the paper's form; the paper's own figures are in separate columns, headed as such."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from polyshot.data import SCENARIOS
from polyshot.errors import InputError
from polyshot.evaluation.measures import MEASURES, Measure, OutlierMeasure, measure_of
from polyshot.evaluation.results import Result
from polyshot.report.groups import TaskShape, task_of
from polyshot.report.published import published_figure, published_scenarios
from polyshot.report.titles import method_label, scenario_title

_PAPER = "Columns headed “paper” have the figures published by Snell & Zemel (ICLR 2021), not ours."
_SEEDS = "Cells that name a number of seeds: mean ± standard deviation over training seeds."
_BATCHES = "± is the standard deviation of the batch means."


@dataclass(frozen=True)
class Column:
    """One measure on one task; `paper_scenario` is set for the paper's figures, which may be of another data set."""

    task: TaskShape
    measure: Measure
    paper_scenario: str | None = None

    @property
    def group(self) -> str:
        """The upper line of the head."""
        return scenario_title(self.task.scenario)

    def title(self, with_measure: bool) -> str:
        """The lower line of the head."""
        ways = f"{self.task.ways}-way " if self.task.ways != 5 else ""
        title = f"{ways}{self.task.shots}-shot" + (f" {self.measure.heading}" if with_measure else "")
        if self.paper_scenario is None:
            return title
        if self.paper_scenario == self.task.scenario:
            return f"{title}, paper"
        return f"{title}, paper on {scenario_title(self.paper_scenario)} (another data set)"


class Cell(NamedTuple):
    """A figure; `best` marks the best of ours in the column. `result` is set where the figure is of one run."""

    value: float
    std: float | None = None
    low: float | None = None
    high: float | None = None
    episodes: int | None = None
    n_seeds: int = 1
    best: bool = False
    result: Result | None = None


@dataclass(frozen=True)
class Table:
    """One table: for each row label, one cell or None per column."""

    name: str
    title: str
    note: str
    columns: list[Column]
    rows: dict[str, list[Cell | None]]
    with_measure: bool


@dataclass(frozen=True)
class _Wanted:
    """What a table is to show."""

    name: str
    title: str
    note: str
    results: list[Result]
    measures: Sequence[Measure]
    paper_table: str | None = None
    with_measure: bool = True


def make_tables(results: Sequence[Result], published_for: str | None = None, *, by_seed: bool = False) -> list[Table]:
    """Make every table that there are results for.

    Parameters
    ----------
    results : sequence of Result
    published_for : str, optional
        A scenario of the paper whose figures are put beside those of scenarios that the paper lacks.
    by_seed : bool
        Show runs that differ only in their training seed one by one, instead of their mean and standard deviation.
    """
    if published_for is not None and published_for not in published_scenarios():
        raise InputError(
            f"the paper has no figures for {published_for!r}; choose from {', '.join(sorted(published_scenarios()))}"
        )
    tables = [_table(wanted, published_for, by_seed) for wanted in _wanted(results) if wanted.results]
    return [table for table in tables if table.columns]


def _wanted(results: Sequence[Result]) -> list[_Wanted]:
    accuracy, corruption, outside = (
        [r for r in results if r.protocol == protocol] for protocol in ("accuracy", "corruption", "out-of-episode")
    )
    plain = [r for r in accuracy if r.temperature is None]  # a temperature does not change accuracy
    wanted = []
    for crosses, number, kind, name in (
        (False, 2, "Accuracy", "accuracy"), (True, 3, "Cross-domain accuracy", "cross-domain")
    ):  # fmt: skip
        some = [r for r in plain if (r.scenario in SCENARIOS and SCENARIOS[r.scenario].crosses) == crosses]
        papers = all(r.scenario in published_scenarios() for r in some)
        title = f"{kind} in per cent" + (f" (the paper's Table {number})" if papers else "")
        wanted.append(_Wanted(name, title, _BATCHES, some, [MEASURES["accuracy"]], "accuracy", with_measure=False))
    for condition in sorted({r.settings.name for r in corruption}):
        some = [r for r in corruption if r.settings.name == condition]
        settings = some[0].settings
        title = f"{settings.condition.capitalize()}, on support and query"
        paper = f"corruption:{settings.corruption}" if settings.severity == 5 else None
        wanted.append(_Wanted(condition, title, "", some, [MEASURES["accuracy"], MEASURES["brier"]], paper))
    measures = [m for m in _measures_of(accuracy) if m is not MEASURES["accuracy"]]
    note = "ECE and MCE: 15 bins of equal width."
    wanted.append(_Wanted("calibration", "Calibration and other measures", note, accuracy, measures))
    detecting = [m for m in _measures_of(outside) if isinstance(m, OutlierMeasure) or m.name not in MEASURES]
    note = "Mean AUROC per episode with its 95 % bootstrap interval, for each score of “none of these classes”."
    wanted.append(_Wanted("out-of-episode", "Out-of-episode detection", note, outside, detecting))
    return wanted


def _measures_of(results: Sequence[Result]) -> list[Measure]:
    """Every measure that some of the results have, in the order of MEASURES, unknown ones last."""
    known = {name for r in results for name in r.summary}
    return [measure_of(name) for name in (*MEASURES, *sorted(known - set(MEASURES))) if name in known]


def _table(wanted: _Wanted, published_for: str | None, by_seed: bool) -> Table:
    placed = _placed(wanted.results, by_seed)
    columns: list[Column] = []
    cells: dict[tuple[str, Column], Cell] = {}
    for task in sorted({task for _, task in placed}):
        here = {label: results for (label, at), results in placed.items() if at == task}
        for measure in wanted.measures:
            ours = Column(task, measure)
            found = {label: cell for label, some in here.items() if (cell := _cell(some, measure)) is not None}
            if not found:
                continue
            columns.append(ours)
            best = (max if measure.higher_is_better else min)(cell.value for cell in found.values())
            cells |= {(label, ours): cell._replace(best=cell.value == best) for label, cell in found.items()}
            scenario = task.scenario if task.scenario in published_scenarios() else published_for
            if scenario is None or wanted.paper_table is None or task.ways != 5:
                continue
            paper = Column(task, measure, scenario)
            for label, (r, *_) in here.items():
                figure = published_figure(wanted.paper_table, scenario, task.shots, r.method, r.options, measure.name)
                if figure is not None and r.temperature is None:
                    cells[label, paper] = Cell(*figure)
                    columns += [paper] * (paper not in columns)
    sizes = sorted({(r.settings.batches, r.settings.episodes) for r in wanted.results})
    episodes = ", ".join(f"{n} x {k:,}" if n > 1 else f"{k:,}" for n, k in sizes)
    seeds = _SEEDS if any(cell.n_seeds > 1 for cell in cells.values()) else ""
    paper_note = _PAPER if any(c.paper_scenario for c in columns) else ""
    note = " ".join(part for part in (f"{episodes} episodes.", wanted.note, seeds, paper_note) if part)
    labels = dict.fromkeys(label for label, _ in placed)
    rows = {label: [cells.get((label, column)) for column in columns] for label in labels}
    return Table(wanted.name, wanted.title, note, columns, rows, wanted.with_measure)


def _placed(results: Sequence[Result], by_seed: bool) -> dict[tuple[str, TaskShape], list[Result]]:
    """The results of each row and task: one, or several that differ only in the training seed.

    Rows go by method. Where a method has several different runs on one task, its rows also name the runs.
    """
    groups: dict[tuple[str, TaskShape], dict[str, list[Result]]] = {}
    for r in results:
        training = {name: value for name, value in r.training.items() if name != "seed"}
        alike = r.run if by_seed else json.dumps(training, sort_keys=True, default=str)
        groups.setdefault((method_label(r), task_of(r)), {}).setdefault(alike, []).append(r)
    clashing = {label for (label, _), by in groups.items() if len(by) > 1 or any(map(_share_a_seed, by.values()))}
    placed: dict[tuple[str, TaskShape], list[Result]] = {}
    for (label, task), by in groups.items():
        for some in by.values():
            for part in [[r] for r in some] if _share_a_seed(some) else [some]:
                name = f"{label} [{', '.join(r.run for r in part)}]" if label in clashing else label
                if (name, task) in placed:
                    raise InputError(
                        f"there are two results for {name} on {task.title}; name only one of them, or rename a run "
                        "folder"
                    )
                placed[name, task] = part
    return placed


def _share_a_seed(results: Sequence[Result]) -> bool:
    return len({r.seed for r in results}) < len(results)


def _cell(results: Sequence[Result], measure: Measure) -> Cell | None:
    """The figure of one result, or the mean and standard deviation of several."""
    known = [r for r in results if measure.name in r.summary]
    if not known:
        return None
    episodes = known[0].settings.n_episodes
    if len(known) > 1:
        values = [r.summary[measure.name].estimate for r in known]
        return Cell(float(np.mean(values)), float(np.std(values, ddof=1)), episodes=episodes, n_seeds=len(known))
    figure = known[0].summary[measure.name]
    std = None if np.isnan(figure.std) else figure.std
    low, high = (figure.low, figure.high) if figure.bounded else (None, None)
    return Cell(figure.estimate, std, low, high, episodes, result=known[0])
