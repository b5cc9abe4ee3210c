"""`polyshot evaluate`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyshot.cli.options import Root
from polyshot.data import CORRUPTIONS
from polyshot.errors import InputError
from polyshot.evaluation.evaluate import evaluate as evaluate_runs
from polyshot.evaluation.measures import MEASURES, Measure, measure_of
from polyshot.evaluation.metrics import Interval
from polyshot.evaluation.paired_results import ResultComparison
from polyshot.evaluation.protocols import PROTOCOLS, Changes, ProtocolSettings
from polyshot.evaluation.results import Result
from polyshot.system.allocator import keep_freed_memory
from polyshot.system.text import printable


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; all are evaluated on the same episodes.")],
    protocol: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PROTOCOLS)} or all (the default).")] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes per batch (default: 600 for accuracy, else 1000).")
    ] = None,
    batches: Annotated[
        int | None, typer.Option(min=1, help="Batches (default: 5 for accuracy and calibration, else 1).")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=1, help="Shots (default: the run's own for accuracy and calibration, else 5).")
    ] = None,
    ways: Annotated[int | None, typer.Option(min=2, help="Classes per episode (default: the run's own).")] = None,
    queries: Annotated[int, typer.Option(min=1, help="Queries per class.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 0,
    corruption: Annotated[list[str] | None, typer.Option(help=f"{', '.join(CORRUPTIONS)} (default: all).")] = None,
    severity: Annotated[int, typer.Option(help="Severity of the corruption, 1 to 5.")] = 5,
    crops: Annotated[
        bool, typer.Option("--crops", help="Corrupt the crop that the network sees, as in the paper's public code.")
    ] = False,
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Add results with a temperature fitted on validation episodes.")
    ] = False,
    against: Annotated[Path | None, typer.Option(help="Run to compare the others with (default: the first).")] = None,
    out: Annotated[Path | None, typer.Option(help="Write results to OUT/NAME OF RUN (default: RUN/results).")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the results are the same for any number.")] = 1,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Accept runs whose training has not ended.")] = False,
    root: Root = None,
) -> None:
    """Evaluate trained runs by the paper's protocols. After an interruption the same command continues."""
    keep_freed_memory()
    protocols = protocol or ["all"]
    if corruption and not {"corruption", "all"} & set(protocols):
        raise InputError(f"--corruption belongs to --protocol corruption, not to {', '.join(protocols)}")
    names = tuple(corruption or CORRUPTIONS)
    changes = Changes(episodes, batches, shots, ways, queries, seed, names, severity, crops)
    try:
        evaluation = evaluate_runs(
            runs, protocols, changes, temperature=temperature, against=against, out=out, root=root,
            workers=workers, unfinished=unfinished,
        )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("interrupted; run the same command again to continue", err=True)
        raise typer.Exit(130) from None
    for note in evaluation.notes:
        typer.echo(f"note: {printable(note)}")
    _print_results(evaluation.results)
    _print_comparisons(evaluation.comparisons)
    for folder in sorted({str(r.path.parent) for r in evaluation.results if r.path}):
        typer.echo(f"written: {printable(folder)}")


def _print_results(results: Sequence[Result]) -> None:
    known = {name for r in results for name in r.summary}
    shown = [measure_of(name) for name in (*MEASURES, *sorted(known - set(MEASURES))) if name in known]
    table = Table("protocol", "run", *(m.heading for m in shown), caption="with 95 % intervals")
    for r in results:
        figures = (_figure(r.summary.get(m.name), m) for m in shown)
        table.add_row(_place(r.settings), Text(printable(r.label)), *figures)
    _wide().print(table)


def _print_comparisons(comparisons: Sequence[ResultComparison]) -> None:
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
