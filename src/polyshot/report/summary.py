"""The headline table of a report: one row per run, one column per headline measure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polyshot.evaluation.measures import MEASURES, Measure, OutlierMeasure
from polyshot.evaluation.metrics import Interval
from polyshot.evaluation.paired_results import compare
from polyshot.evaluation.results import Result
from polyshot.report.groups import Group, Page, TaskShape

SIGNIFICANT = 0.05  # a smaller p-value counts as a difference


class SummaryCell(NamedTuple):
    """A figure; `best` marks the best of its column, `tied` one that does not differ significantly from the best."""

    interval: Interval
    best: bool
    tied: bool


@dataclass(frozen=True)
class SummaryTable:
    """The headline figures of one task.

    Attributes
    ----------
    task : TaskShape
    measures : list of Measure
        The columns.
    rows : dict
        By label of the run: a SummaryCell, or None where it was not evaluated, for each column.
    note : str
        How many episodes there were.
    """

    task: TaskShape
    measures: list[Measure]
    rows: dict[str, list[SummaryCell | None]]
    note: str


def summary_tables(results: Sequence[Result]) -> list[SummaryTable]:
    """The headline figures of all tasks; outlier measures come from out-of-episode results, others from accuracy."""
    page = Page(results)
    return [table for task in page.tasks if (table := _table(page, task)).measures]


def _table(page: Page, task: TaskShape) -> SummaryTable:
    groups = {protocol: page.group(protocol, task) for protocol in ("accuracy", "out-of-episode")}
    columns: list[tuple[Measure, Group]] = []
    for measure in MEASURES.values():
        group = groups["out-of-episode" if isinstance(measure, OutlierMeasure) else "accuracy"]
        if measure.headline and group and any(measure.name in r.summary for r in group.results):
            columns.append((measure, group))
    shown = list({id(group): group for _, group in columns}.values())
    labels = [label for label in page.labels if any(group.of(label) for group in shown)]
    rows = {label: [_cell(group, label, measure) for measure, group in columns] for label in labels}
    return SummaryTable(task, [measure for measure, _ in columns], rows, ", ".join(sorted(map(_episodes, shown))))


def _cell(group: Group, label: str, measure: Measure) -> SummaryCell | None:
    result = group.of(label)
    if result is None or measure.name not in result.summary:
        return None
    known = [r for r in group.results if measure.name in r.summary]
    pick = max if measure.higher_is_better else min
    best = pick(known, key=lambda r: r.summary[measure.name].estimate)
    own = result.summary[measure.name]
    if own.estimate == best.summary[measure.name].estimate:
        return SummaryCell(own, len(group.results) > 1, False)
    paired = compare(result, best, measure.name)
    return SummaryCell(own, False, paired is not None and paired.p_value > SIGNIFICANT)


def _episodes(group: Group) -> str:
    counts = sorted({r.settings.n_episodes for r in group.results})
    return f"{group.protocol}: {' or '.join(f'{n:,}' for n in counts)} episodes"
