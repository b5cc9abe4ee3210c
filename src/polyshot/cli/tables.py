"""`polyshot tables`."""

from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.messages import say

Results = Annotated[list[Path], typer.Argument(help="Result files, run folders, or folders that contain runs.")]


def tables(
    results: Results,
    form: Annotated[str, typer.Option("--format", help="markdown, latex or csv.")] = "markdown",
    out: Annotated[Path | None, typer.Option(help="File to write (default: print the tables).")] = None,
    by_seed: Annotated[
        bool,
        typer.Option("--by-seed", help="Show runs that differ only in the training seed one by one, not their mean."),
    ] = False,
    published_for: Annotated[
        str | None,
        typer.Option(help="Put the paper's figures for this scenario beside scenarios that the paper lacks."),
    ] = None,
) -> None:
    """Tables of results in the paper's form, with the paper's own figures where the scenario is the same."""
    from polyshot.evaluation.results import find_results
    from polyshot.report.tables import make_tables
    from polyshot.report.tables_text import render
    from polyshot.system.files import write_atomically

    text = render(make_tables(find_results(results), published_for, by_seed=by_seed), form)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
        say(f"written: {out}")
