"""`polyshot report`."""

from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.messages import say
from polyshot.cli.options import Root
from polyshot.cli.tables import Results


def report(
    results: Results,
    out: Annotated[Path, typer.Option(help="HTML file to write; it needs no other file.")] = Path("report.html"),
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write the reliability diagrams to DIR, as PNG and PDF files."),
    ] = None,
    root: Root = None,
) -> None:
    """Write one HTML page to read offline. The first run is compared with the others (in words, with three of them)."""
    from polyshot.evaluation.results import find_results
    from polyshot.report.page import write_report

    found = find_results(results)
    say(f"written: {write_report(found, out, root)}")
    if figures is not None:
        from polyshot.report.reliability import write_reliability

        for path in write_reliability(found, figures):
            say(f"written: {path}")
