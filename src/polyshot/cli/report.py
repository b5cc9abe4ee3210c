"""`polyshot report`."""

from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.options import Root
from polyshot.cli.tables import Results
from polyshot.evaluation.results import find_results
from polyshot.report.page import write_report


def report(
    results: Results,
    out: Annotated[Path, typer.Option(help="HTML file to write; it needs no other file.")] = Path("report.html"),
    root: Root = None,
) -> None:
    """Write one HTML page to read offline. The first run is compared with the others (in words, with three of them)."""
    typer.echo(f"written: {write_report(find_results(results), out, root)}")
