"""`make demo`: teach two methods to read characters from five examples each, and see which one knows what it knows.

python -m polyshot.demo [--out FOLDER]

On `glyphs`, which needs no download. What was done is not done again: the same command goes on where it was stopped.
"""

import contextlib
import multiprocessing
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from polyshot.errors import PolyshotError, TrainingError
from polyshot.evaluation.evaluate import evaluate
from polyshot.evaluation.measures import Measure
from polyshot.evaluation.metrics import Interval
from polyshot.evaluation.protocols import Changes
from polyshot.report.findings import findings
from polyshot.report.page import write_report
from polyshot.report.summary import SummaryTable, summary_tables
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import read_history
from polyshot.runs.trainer import train
from polyshot.system.progress import Progress

_INTRODUCTION = """\
Few-shot classification: both methods learn from letters of some scripts how to tell characters apart. Then they get
tasks of letters of scripts they have never seen: five letters, five examples of each, and queries to put into the right
letter. Both share the same small network (Conv4) and see the same tasks.

  [bold]ove-gp[/]    the one-vs-each Pólya-Gamma GP of Snell & Zemel (ICLR 2021): many classifiers a task, weighed
  [bold]protonet[/]  Prototypical Networks (Snell et al., 2017): the nearest class mean, no uncertainty about it
"""


@dataclass(frozen=True)
class Budget:
    """Training episodes (in steps of `epoch`, after each of which is validated), and test episodes a batch."""

    training: int = 200
    epoch: int = 50
    validation: int = 20
    test: int = 60


def main(
    out: Annotated[Path, typer.Option(help="Folder of the runs and the report.")] = Path("runs/demo"),
) -> None:
    """Train, evaluate, print what was found, write report.html."""
    try:
        run_demo(out)
    except PolyshotError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on from what is done", err=True)
        raise typer.Exit(130) from None


def run_demo(out: Path, budget: Budget | None = None) -> Path:
    """The whole demonstration; returns the report."""
    budget = budget or Budget()
    start = time.monotonic()
    console = Console(highlight=False)
    console.print(_INTRODUCTION, soft_wrap=True)
    console.print(f"[bold]1. Training[/], {budget.training} episodes each (the paper: 40,000), both at once")
    runs = _train_both(out, budget)
    console.print(
        "[bold]2. Evaluation[/] on unseen scripts: accuracy, calibration, bad images, unknown letters", soft_wrap=True
    )
    results = evaluate(runs, changes=Changes(episodes=budget.test), workers=2).results
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
    """Train both runs at once, a process and a thread each; what they print goes to a file beside the run."""
    options = {"objective": "pl"}
    configs = [
        TrainingConfig(
            method,
            "glyphs",
            options=given,
            epochs=budget.training // budget.epoch,
            episodes_per_epoch=budget.epoch,
            validation_episodes=budget.validation,
        )
        for method, given in (("ove-gp", options), ("protonet", {}))
    ]
    runs = [out / config.method for config in configs]
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_train, args=(config, run), daemon=True)
        for config, run in zip(configs, runs, strict=True)
        if _episodes_done(run) < budget.training
    ]
    for process in processes:
        process.start()
    try:
        seen = sum(map(_episodes_done, runs))
        with Progress("training", len(runs) * budget.training, seen) as bar:
            while any(process.is_alive() for process in processes):
                time.sleep(0.5)
                if (done := sum(map(_episodes_done, runs))) > seen:
                    bar.update(seen := done)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    for run in runs:
        if _episodes_done(run) < budget.training:
            raise TrainingError(f"{run}: training failed; {_log(run)} says why")
    return runs


def _train(config: TrainingConfig, run: Path) -> None:
    """In a process of its own."""
    _log(run).parent.mkdir(parents=True, exist_ok=True)
    with _log(run).open("a", encoding="utf-8") as log, contextlib.redirect_stderr(log):
        try:
            train(config, run, threads=1)
        except PolyshotError as error:
            print(f"error: {error}", file=log)
            sys.exit(1)


def _log(run: Path) -> Path:
    return run.with_suffix(".log")


def _episodes_done(run: Path) -> int:
    """As the run's log says; it is replaced whole, so that it can be read at any time."""
    history = read_history(run)
    return int(history[-1]["episodes"]) if history else 0


def _table(summary: SummaryTable) -> Table:
    """The headline figures with their intervals."""
    table = Table("run", caption="with 95 % intervals")
    for measure in summary.measures:
        table.add_column(measure.heading, justify="right")
    for label, row in summary.rows.items():
        cells = zip(row, summary.measures, strict=True)
        table.add_row(label, *("" if cell is None else _cell(cell.interval, measure) for cell, measure in cells))
    return table


def _cell(interval: Interval, measure: Measure) -> str:
    bounds = f"\n{measure.text(interval.low)} to {measure.text(interval.high)}" if interval.bounded else ""
    return measure.text(interval.estimate) + bounds


if __name__ == "__main__":
    typer.run(main)
