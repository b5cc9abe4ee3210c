"""`polyshot evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyshot.cli.train import Root
from polyshot.data import CORRUPTIONS
from polyshot.errors import InputError
from polyshot.evaluation.evaluate import evaluate as evaluate_runs
from polyshot.evaluation.protocols import PROTOCOLS, Changes
from polyshot.evaluation.results import Result

_SHOWN = ("accuracy", "ece", "mce", "brier", "log_likelihood", "auroc", "auroc_entropy", "auroc_variance")


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; all are given the same episodes.")],
    protocol: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PROTOCOLS)} or all (default).")] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes a batch (default 600; others 1000).")] = None,
    batches: Annotated[
        int | None, typer.Option(min=1, help="Batches (default: accuracy and calibration 5; others 1).")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=1, help="Default: the run's own for accuracy and calibration, else 5.")
    ] = None,
    ways: Annotated[int | None, typer.Option(min=2, help="Classes an episode (default: the run's own).")] = None,
    queries: Annotated[int, typer.Option(min=1, help="Queries a class.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Of the episodes.")] = 0,
    corruption: Annotated[list[str] | None, typer.Option(help=f"{', '.join(CORRUPTIONS)} (default: all).")] = None,
    severity: Annotated[int, typer.Option(help="Of the corruption, 1 to 5.")] = 5,
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Also scaled by a temperature fitted on validation episodes.")
    ] = False,
    against: Annotated[Path | None, typer.Option(help="Run to compare the others with (default: the first).")] = None,
    out: Annotated[Path | None, typer.Option(help="Results to OUT/NAME OF RUN (default: RUN/results).")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the results are the same for any number.")] = 1,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Accept runs that are still to be trained.")] = False,
    root: Root = None,
) -> None:
    """Evaluate trained runs; the same command goes on where it was interrupted. Defaults: the paper's protocols."""
    protocols = protocol or ["all"]
    if corruption and not {"corruption", "all"} & set(protocols):
        raise InputError(f"--corruption belongs to --protocol corruption, not to {', '.join(protocols)}")
    names = tuple(corruption or CORRUPTIONS)
    changes = Changes(episodes, batches, shots, ways, queries, seed, names, severity)
    try:
        evaluation = evaluate_runs(
            runs, protocols, changes, temperature=temperature, against=against, out=out, root=root,
            workers=workers, unfinished=unfinished,
        )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on from what is done", err=True)
        raise typer.Exit(130) from None
    for note in evaluation.notes:
        typer.echo(f"note: {note}")
    _print_results(evaluation.results)
    _print_comparisons(evaluation.comparisons)
    for folder in sorted({str(r.path.parent) for r in evaluation.results if r.path}):
        typer.echo(f"written: {folder}")


def _print_results(results: Sequence[Result]) -> None:
    shown = [name for name in _SHOWN if any(name in r.summary for r in results)]
    table = Table("protocol", "run", *(name.replace("_", " ") for name in shown), caption="with 95 % intervals")
    for r in results:
        table.add_row(_place(r.settings), Text(r.label), *(_figure(r.summary.get(name)) for name in shown))
    _wide().print(table)


def _print_comparisons(entries: Sequence[dict[str, Any]]) -> None:
    if not entries:
        return
    table = Table(
        "protocol", "run minus run", "figure", "difference", "95 % interval", "p", caption="on equal episodes"
    )
    for entry in entries:
        for name, m in entry["metrics"].items():
            interval = "-" if m["low"] != m["low"] else f"{m['low']:+.4f} to {m['high']:+.4f}"
            pair = Text(f"{entry['run']} - {entry['against']}")
            table.add_row(
                _place(entry), pair, name.replace("_", " "), f"{m['difference']:+.4f}", interval, f"{m['p_value']:.2g}"
            )
    _wide().print(table)


def _wide() -> Console:
    """A terminal's own width; elsewhere as wide as the table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def _place(settings: dict[str, Any]) -> str:
    name = settings["protocol"]
    corruption = f" {settings['corruption']} {settings['severity']}" if settings["corruption"] else ""
    return f"{name}{corruption}, {settings['ways']}-way {settings['shots']}-shot"


def _figure(summary: dict[str, float | None] | None) -> str:
    if summary is None or summary["value"] is None:
        return ""
    text = f"{summary['value']:.4f}"
    if summary["low"] is not None and summary["high"] is not None:
        text += f" [{summary['low']:.4f}, {summary['high']:.4f}]"
    if summary.get("std") is not None:
        text += f" sd {summary['std']:.4f}"
    return text
