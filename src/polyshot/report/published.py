"""The figures that the paper published (published.csv, whose first line names the source).

    published_figure("accuracy", "cub", 5, "ove-gp", {"objective": "pl", "kernel": "cosine"}, "accuracy")

Accuracies are shares here, as everywhere in polyshot, not percentages.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from polyshot.report.titles import method_title

_DISTINGUISHED = ("kernel", "objective")  # options that the paper's tables distinguish; chains and steps are ours


class PublishedFigure(NamedTuple):
    """A published mean, and the standard deviation of the five batches where the paper gives one."""

    value: float
    std: float | None


def published_figure(
    table: str, scenario: str, shots: int, method: str, options: Mapping[str, Any], measure: str
) -> PublishedFigure | None:
    """Look up the paper's figure for a method; None if it has none.

    Parameters
    ----------
    table : str
        "accuracy" or "corruption:NAME"; all are 5-way.
    scenario : str
    shots : int
    method : str
    options : mapping
        The method's options, of which only kernel and objective count; defaults may be left out.
    measure : str
    """
    title = method_title(method, {name: options[name] for name in _DISTINGUISHED if name in options})
    return _rows().get((table, scenario, shots, title.lower(), measure))


def published_scenarios() -> set[str]:
    """The scenarios that the paper has figures for."""
    return {key[1] for key in _rows()}


@cache
def _rows() -> dict[tuple[str, str, int, str, str], PublishedFigure]:
    """By table, scenario, shots, lower-case row title and measure; the main table goes before that of the kernels."""
    text = files("polyshot.report").joinpath("published.csv").read_text("utf-8")
    rows: dict[tuple[str, str, int, str, str], PublishedFigure] = {}
    for row in sorted(csv.DictReader(text.splitlines()[1:]), key=lambda row: row["table"] == "kernels"):
        percent = row["metric"] == "accuracy_percent"
        measure, scale = ("accuracy", 100.0) if percent else (row["metric"], 1.0)
        title = row["method"] + (f" + {row['kernel']}" if row["kernel"] else "")
        title += f" ({row['objective']})" if row["objective"] else ""
        table = "accuracy" if row["table"] == "kernels" else row["table"]
        std = round(float(row["std"]) / scale, 6) if row["std"] else None
        figure = PublishedFigure(round(float(row["value"]) / scale, 6), std)
        rows.setdefault((table, row["dataset"], int(row["shots"]), title.lower(), measure), figure)
    return rows
