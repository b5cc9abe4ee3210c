"""`polyshot demo`: two methods learn to recognise characters from five examples each; which one knows what it knows?

It uses the data set `glyphs`, which needs no download. After an interrupt the same command continues.
"""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyshot.cli.messages import say
from polyshot.system.parallel import map_unordered
from polyshot.system.progress import Progress

if TYPE_CHECKING:
    from rich.table import Table

    from polyshot.evaluation.measures import Measure
    from polyshot.evaluation.metrics import Interval
    from polyshot.report.summary import SummaryTable

_METHODS: dict[str, dict[str, Any]] = {"ove-gp": {"objective": "pl"}, "protonet": {}}
_INTRODUCTION = """\
Few-shot classification: both methods learn from letters of some scripts how to distinguish characters. Then they get
tasks with letters of scripts they have never seen: five letters, five examples of each, and queries to assign to the
right letter. Both use the same small network (Conv4) and see the same tasks.

  [bold]ove-gp[/]    the one-vs-each Pólya-Gamma GP of Snell & Zemel (ICLR 2021): averages many classifiers per task
  [bold]protonet[/]  Prototypical Networks (Snell et al., 2017): the nearest class mean, without uncertainty about it
"""


@dataclass(frozen=True)
class Budget:
    """Training episodes, episodes per epoch, validation episodes per epoch, and test episodes per batch."""

    training: int = 200
    epoch: int = 50
    validation: int = 20
    test: int = 60


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("runs/demo"),
) -> None:
    """Train, evaluate and compare two methods in minutes.

    Prints what was found and writes report.html.
    """
    try:
        run_demo(out)
    except KeyboardInterrupt:
        say("interrupted; the same command continues", err=True)
        raise typer.Exit(130) from None


def run_demo(out: Path, budget: Budget | None = None, workers: int = 2) -> Path:
    """Run the whole demonstration and return the report."""
    from rich.console import Console

    from polyshot.evaluation.evaluate import evaluate
    from polyshot.evaluation.protocols import Changes
    from polyshot.report.findings import findings
    from polyshot.report.page import write_report
    from polyshot.report.summary import summary_tables

    budget = budget or Budget()
    start = time.monotonic()
    console = Console(highlight=False)
    console.print(_INTRODUCTION, soft_wrap=True)
    console.print(f"[bold]1. Training[/], {budget.training} episodes each (the paper: 40,000), both at once")
    runs = _train_both(out, budget)
    console.print(
        "[bold]2. Evaluation[/] on unseen scripts: accuracy, calibration, bad images, unknown letters", soft_wrap=True
    )
    results = evaluate(runs, changes=Changes(episodes=budget.test), workers=workers).results
    summary = summary_tables(results)[0]
    console.print("\n[bold]3. What was found[/]\n")
    console.print(_table(summary))
    width = max(len(measure.title) for measure in summary.measures)
    for measure in summary.measures:
        console.print(f"  [bold]{measure.title:{width}}[/]  {measure.meaning}", soft_wrap=True)
    console.print()
    sentences = findings(results)
    for section in ("in-short", "calibration", "abstention", "out-of-episode"):
        for sentence in sentences[section]:
            console.print(f"- {sentence}", soft_wrap=True, markup=False)
    report = write_report(results, out / "report.html")
    console.print(
        f"\nFigures, corrupted images and episodes to look at: [bold]{report}[/] (open it in a browser)", soft_wrap=True
    )
    console.print(f"{time.monotonic() - start:.0f} s. Next: `polyshot train --help`, `polyshot evaluate --help`.")
    return report


def _train_both(out: Path, budget: Budget) -> list[Path]:
    """Train both runs at once, each in a process with one thread, and show how far they are."""
    runs = [out / method for method in _METHODS]
    if min(map(_episodes_done, runs)) < budget.training:
        with Progress("training", len(runs) * budget.training) as bar:
            show = partial(_show, bar, runs)
            for _ in map_unordered(partial(_train, out, budget), list(_METHODS), len(runs), show):
                show()
    return runs


def _train(out: Path, budget: Budget, method: str) -> None:
    from polyshot.runs.config import TrainingConfig
    from polyshot.runs.trainer import train
    from polyshot.system.allocator import keep_freed_memory

    config = TrainingConfig(
        method,
        "glyphs",
        options=_METHODS[method],
        epochs=budget.training // budget.epoch,
        episodes_per_epoch=budget.epoch,
        validation_episodes=budget.validation,
    )
    keep_freed_memory()
    train(config, out / method, threads=1, quiet=True)


def _show(bar: Progress, runs: list[Path]) -> None:
    """Update the bar if there is progress."""
    if (done := sum(map(_episodes_done, runs))) > bar.done:
        bar.update(done)


def _episodes_done(run: Path) -> int:
    """Read from the log; it is replaced as a whole, so it can be read at any time."""
    from polyshot.runs.folder import RunFolder

    history = RunFolder(run).history
    return int(history[-1]["episodes"]) if history else 0


def _table(summary: "SummaryTable") -> "Table":
    """Return the main figures with their intervals."""
    from rich.table import Table

    table = Table("run", caption="with 95 % intervals")
    for measure in summary.measures:
        table.add_column(measure.heading, justify="right")
    for label, row in summary.rows.items():
        cells = zip(row, summary.measures, strict=True)
        table.add_row(label, *("" if cell is None else _cell(cell.interval, measure) for cell, measure in cells))
    return table


def _cell(interval: "Interval", measure: "Measure") -> str:
    bounds = f"\n{measure.text(interval.low)} to {measure.text(interval.high)}" if interval.bounded else ""
    return measure.text(interval.estimate) + bounds
