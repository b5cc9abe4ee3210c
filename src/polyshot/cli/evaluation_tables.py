"""What `polyshot evaluate` prints: the figures of every run, and the paired differences."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyshot.evaluation.measures import MEASURES, Measure, measure_of
from polyshot.evaluation.metrics import Interval
from polyshot.evaluation.paired_results import ResultComparison
from polyshot.evaluation.protocols import ProtocolSettings
from polyshot.evaluation.results import Result
from polyshot.system.text import printable


def print_results(results: Sequence[Result]) -> None:
    """Print a table of all figures with their intervals."""
    known = {name for r in results for name in r.summary}
    shown = [measure_of(name) for name in (*MEASURES, *sorted(known - set(MEASURES))) if name in known]
    table = Table("protocol", "run", *(m.heading for m in shown), caption="with 95 % intervals")
    for r in results:
        figures = (_figure(r.summary.get(m.name), m) for m in shown)
        table.add_row(_place(r.settings), Text(printable(r.label)), *figures)
    _wide().print(table)


def print_comparisons(comparisons: Sequence[ResultComparison]) -> None:
    """Print a table of the paired differences, if there are any."""
    if not comparisons:
        return
    table = Table(
        "protocol", "run minus run", "measure", "difference", "95 % interval", "p", caption="on the same episodes"
    )
    for c in comparisons:
        for name, paired in c.measures.items():
            measure, d = measure_of(name), paired.difference
            low, high = (measure.text(x, _digits(measure), sign=True) for x in (d.low, d.high))
            table.add_row(
                _place(c.settings),
                Text(printable(f"{c.run} - {c.against}")),
                measure.heading,
                measure.text(d.estimate, _digits(measure), sign=True),
                f"{low} to {high}" if d.bounded else "-",
                f"{paired.p_value:.2g}",
            )
    _wide().print(table)


def _wide() -> Console:
    """A console as wide as the terminal; elsewhere as wide as the table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def _place(settings: ProtocolSettings) -> str:
    corruption = f" {settings.corruption} {settings.severity}" if settings.corruption else ""
    return f"{settings.protocol}{corruption}, {settings.ways}-way {settings.shots}-shot"


def _figure(interval: Interval | None, measure: Measure) -> str:
    if interval is None:
        return ""
    text = measure.text(interval.estimate, _digits(measure))
    if interval.bounded:
        text += f" [{measure.text(interval.low, _digits(measure))}, {measure.text(interval.high, _digits(measure))}]"
    return text if math.isnan(interval.std) else f"{text} sd {measure.text(interval.std, _digits(measure))}"


def _digits(measure: Measure) -> int:
    return 2 if measure.percent else 4
