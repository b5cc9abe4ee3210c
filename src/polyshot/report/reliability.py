"""Reliability diagrams as image files, for papers and slides; the HTML page draws its own."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from polyshot.errors import InputError
from polyshot.evaluation.measures import MEASURES
from polyshot.evaluation.results import Result
from polyshot.report.groups import Page
from polyshot.system.files import write_atomically
from polyshot.system.text import printable

_LOOK: Any = {"font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False}
_COLUMNS = 4
_PLAIN, _HIGHLIGHTED, _SHARES = "#0072B2", "#009E73", "#BBBBBB"


def write_reliability(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write one diagram per task as PNG and as PDF, and return the files.

    Parameters
    ----------
    results : sequence of Result
        Those of the protocol "accuracy" are drawn.
    folder : Path
        Where the files go; their names are those of the tasks.
    """
    written: list[Path] = []
    stems: Counter[str] = Counter()
    for group in Page(results).groups("accuracy"):
        known = {r.label: r for r in group.results if r.reliability is not None}
        if not known:
            continue
        stem = "reliability-" + re.sub(r"[^a-z0-9]+", "-", group.task.title.lower()).strip("-")
        stems[stem] += 1
        stem += f"-{stems[stem]}" if stems[stem] > 1 else ""  # tasks may differ in other letters
        figure = draw_reliability(known)
        for ending in ("png", "pdf"):
            image = BytesIO()
            figure.savefig(image, format=ending, dpi=200)
            write_atomically(folder / f"{stem}.{ending}", image.getvalue())
            written.append(folder / f"{stem}.{ending}")
    if not written:
        raise InputError("no result has a reliability diagram; run `polyshot evaluate RUN --protocol accuracy`")
    return written


def draw_reliability(results: Mapping[str, Result], fewest: int = 30, highlighted: Collection[str] = ()) -> Figure:
    """Draw accuracy against confidence, with the share of the queries in each bin, one diagram per result.

    Parameters
    ----------
    results : mapping from str to Result
        Results with reliability bins, by title.
    fewest : int
        A bin with fewer queries has no dot, because its accuracy is mostly chance.
    highlighted : collection of str
        Titles that are drawn in another colour.
    """
    n_columns = min(_COLUMNS, len(results))
    n_rows = -(-len(results) // n_columns)
    with rc_context(_LOOK):
        figure = Figure(figsize=(2.5 * n_columns, 0.7 + 2.3 * n_rows), layout="constrained")
        axes = list(figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True).flat)
    for axis, (title, result) in zip(axes, results.items(), strict=False):
        bins = result.reliability
        if bins is None:
            raise InputError(f"{title} has no reliability bins")
        dots = bins.count >= fewest
        width = bins.edges[1] - bins.edges[0]
        axis.bar(bins.edges[:-1], bins.count / bins.count.sum(), width, align="edge", color=_SHARES)
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
        colour = _HIGHLIGHTED if title in highlighted else _PLAIN
        axis.plot(bins.confidence[dots], bins.accuracy[dots], marker="o", markersize=3, color=colour)
        ece = MEASURES["ece"].text(result.summary["ece"].estimate)
        axis.set(xlim=(0, 1), ylim=(0, 1))
        axis.set_title(f"{printable(title)}\nECE {ece}", parse_math=False)  # a name between dollars is no formula
    for axis in axes[len(results) :]:
        axis.set_visible(False)
    for axis in axes[max(0, len(results) - n_columns) : len(results)]:
        axis.tick_params(labelbottom=True)
    figure.supxlabel("confidence")
    figure.supylabel("accuracy; grey: share")
    return figure
