"""Results that belong together in a report: one protocol, one scenario, one shape of task."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from polyshot.errors import InputError
from polyshot.evaluation.results import Result
from polyshot.report.titles import scenario_title


class TaskShape(NamedTuple):
    """What the episodes are: scenario, ways and shots."""

    scenario: str
    ways: int
    shots: int

    @property
    def title(self) -> str:
        """For headings."""
        return f"{scenario_title(self.scenario)}, {self.ways}-way {self.shots}-shot"


def task_of(result: Result) -> TaskShape:
    """The task of a result."""
    return TaskShape(result.scenario, result.settings.ways, result.settings.shots)


@dataclass(frozen=True)
class Group:
    """Results of one protocol, task and corruption, in the order of `Page.labels`."""

    task: TaskShape
    results: list[Result]

    @property
    def protocol(self) -> str:
        """The protocol of all of them."""
        return self.results[0].protocol

    @property
    def condition(self) -> str:
        """Their corruption, for people."""
        return self.results[0].settings.condition

    def of(self, label: str) -> Result | None:
        """The result with that label."""
        return next((r for r in self.results if r.label == label), None)


@dataclass(frozen=True)
class Page:
    """All results of a report; each label (a run, perhaps temperature-scaled) has one colour throughout."""

    results: Sequence[Result]

    def __post_init__(self) -> None:
        seen: set[tuple[object, ...]] = set()
        for r in self.results:
            key = (r.label, r.settings.name, task_of(r))
            if key in seen:
                raise InputError(
                    f"there are two results of {r.label} for {r.settings.name} on {task_of(r).title}; name only one of "
                    "them, or rename a run folder"
                )
            seen.add(key)

    @cached_property
    def labels(self) -> list[str]:
        """Plain runs first, then temperature-scaled ones, each in the order given."""
        ordered = sorted(self.results, key=lambda r: r.temperature is not None)
        return list(dict.fromkeys(r.label for r in ordered))

    @cached_property
    def tasks(self) -> list[TaskShape]:
        """All tasks, in the order given."""
        return list(dict.fromkeys(task_of(r) for r in self.results))

    def groups(self, protocol: str) -> list[Group]:
        """The groups of a protocol: one per task and corruption."""
        groups: dict[tuple[TaskShape, str], list[Result]] = {}
        for r in sorted(self.results, key=lambda r: self.labels.index(r.label)):
            if r.protocol == protocol:
                groups.setdefault((task_of(r), r.settings.name), []).append(r)
        return [Group(task, results) for (task, _), results in groups.items()]

    def group(self, protocol: str, task: TaskShape) -> Group | None:
        """The group of a protocol that has no corruptions."""
        return next((g for g in self.groups(protocol) if g.task == task), None)

    def css(self, label: str) -> str:
        """The CSS class of a label's colour."""
        return f"s{self.labels.index(label) % 8}"
