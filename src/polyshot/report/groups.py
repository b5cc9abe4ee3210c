"""Results that belong together in a report: one protocol, one scenario, one shape of task."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from polyshot.errors import InputError
from polyshot.evaluation.comparison import PairedComparison, compare_paired
from polyshot.evaluation.results import Result
from polyshot.report.published import scenario_name


class Task(NamedTuple):
    """What the episodes are."""

    scenario: str
    ways: int
    shots: int

    @property
    def title(self) -> str:
        """For headings."""
        return f"{scenario_name(self.scenario)}, {self.ways}-way {self.shots}-shot"


def task_of(result: Result) -> Task:
    """The task of a result."""
    return Task(result.scenario, result.settings["ways"], result.settings["shots"])


@dataclass(frozen=True)
class Group:
    """Results of one protocol and task in the order of `Page.labels`; `corruption` and `severity` are part of it."""

    protocol: str
    task: Task
    corruption: str | None
    severity: int | None
    results: list[Result]

    def of(self, label: str) -> Result | None:
        """The result of that label."""
        return next((r for r in self.results if r.label == label), None)


@dataclass(frozen=True)
class Page:
    """All results of a report; a label (a run, perhaps scaled) has one number, hence colour, throughout."""

    results: list[Result]

    def __post_init__(self) -> None:
        seen: set[tuple[object, ...]] = set()
        for r in self.results:
            key = (r.label, r.protocol, task_of(r), r.settings["corruption"], r.settings["severity"])
            if key in seen:
                raise InputError(
                    f"two results of {r.label} under {r.protocol} on {task_of(r).title}; name one of them only, or "
                    "rename a run folder"
                )
            seen.add(key)

    @cached_property
    def labels(self) -> list[str]:
        """Plain runs first, in the order given."""
        ordered = sorted(self.results, key=lambda r: r.temperature is not None)
        return list(dict.fromkeys(r.label for r in ordered))

    @cached_property
    def tasks(self) -> list[Task]:
        """In the order given."""
        return list(dict.fromkeys(task_of(r) for r in self.results))

    def groups(self, protocol: str) -> list[Group]:
        """The groups of a protocol."""
        groups: dict[tuple[Task, str | None, int | None], list[Result]] = {}
        for r in sorted(self.results, key=lambda r: self.labels.index(r.label)):
            if r.protocol == protocol:
                key = (task_of(r), r.settings["corruption"], r.settings["severity"])
                groups.setdefault(key, []).append(r)
        return [Group(protocol, *key, results) for key, results in groups.items()]

    def group(self, protocol: str, task: Task) -> Group | None:
        """The group of a protocol that has no corruptions."""
        return next((g for g in self.groups(protocol) if g.task == task), None)

    def css(self, label: str) -> str:
        """The CSS class of a label's colour."""
        return f"s{self.labels.index(label) % 8}"


def compare(result: Result, against: Result, metric: str) -> PairedComparison | None:
    """Paired differences, result minus against; None where the episodes are not the same."""
    if (result.settings, result.test_data) != (against.settings, against.test_data):
        return None
    if metric not in result.episodes or metric not in against.episodes:
        return None
    return compare_paired(np.array(result.episodes[metric]), np.array(against.episodes[metric]), seed=0)


def value(result: Result, metric: str) -> float:
    """A figure of the summary."""
    figure = result.summary[metric]["value"]
    if figure is None:
        raise InputError(f"{result.path}: has no value of {metric}; delete it and run `polyshot evaluate` again")
    return figure


def all_labels(groups: Sequence[Group]) -> list[str]:
    """The labels of some groups, each once."""
    return list(dict.fromkeys(r.label for group in groups for r in group.results))
