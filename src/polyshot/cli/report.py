"""`polyshot tables` and `polyshot report`."""

from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.train import Root
from polyshot.evaluation.results import find_results
from polyshot.report.page import write_report
from polyshot.report.tables import make_tables
from polyshot.report.tables_text import FORMATS, render
from polyshot.system.files import write_atomically

Results = Annotated[list[Path], typer.Argument(help="Result files, run folders, or folders with runs in them.")]


def tables(
    results: Results,
    form: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = "markdown",
    out: Annotated[Path | None, typer.Option(help="File to write to (default: the screen).")] = None,
    published_for: Annotated[
        str | None,
        typer.Option(help="A scenario of the paper: its figures beside those of scenarios that it has not, headed so."),
    ] = None,
) -> None:
    """Tables in the paper's form; the paper's own figures beside ours where the scenario is the same."""
    text = render(make_tables(find_results(results), published_for), form)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
        typer.echo(f"written: {out}")


def report(
    results: Results,
    out: Annotated[Path, typer.Option(help="The page; it needs no other file.")] = Path("report.html"),
    root: Root = None,
) -> None:
    """One HTML page to read offline; the first run named is compared with the others, in words with three."""
    typer.echo(f"written: {write_report(find_results(results), out, root)}")
