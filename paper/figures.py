"""`python -m paper.figures`: the paper's comparison of likelihoods, as figures, numbers and a short text.

Each command imports what it runs: matplotlib and scikit-learn would make every other command wait.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from polyshot.cli.messages import ErrorsAsMessages
from polyshot.errors import InputError

app = typer.Typer(
    cls=ErrorsAsMessages,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The paper's likelihood figures: confidence, likelihoods, iris.",
)

Out = Annotated[Path, typer.Option(help="Folder to write to; made if it is not there.")]
Seed = Annotated[int, typer.Option(min=0)]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer draws: to see that it works, not to cite.")]


@app.command()
def confidence(out: Out = Path("figures"), seed: Seed = 0, quick: Quick = False) -> None:
    """Section 5.1.1: the maximum class probability of random logits under each likelihood."""
    from paper.studies.confidence import confidence_figure
    from paper.studies.output import make_folder

    _say(confidence_figure(make_folder(out), 5_000 if quick else 50_000, seed=seed))


@app.command()
def likelihoods(out: Out = Path("figures"), quick: Quick = False) -> None:
    """Section 5.1.2: the four likelihoods and posteriors of one example (nothing random, so no seed)."""
    from paper.studies.likelihood_surfaces import likelihoods_figure
    from paper.studies.output import make_folder

    _say(likelihoods_figure(make_folder(out), 161 if quick else 401))


@app.command()
def iris(
    out: Out = Path("figures"),
    seed: Seed = 0,
    quick: Quick = False,
    sizes: Annotated[
        str | None, typer.Option(help="Examples a class, such as 1,5,30; the paper's ten if left out.")
    ] = None,
    splits: Annotated[int | None, typer.Option(min=2, help="Random splits a size; 200 if left out.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; as many as there are cores if left out.")
    ] = None,
) -> None:
    """Section 5.1.3: accuracy, Brier score, ECE and ELBO on Iris. After an interrupt the same command goes on."""
    from paper.studies.iris import Effort
    from paper.studies.iris_figures import iris_figures
    from paper.studies.iris_study import PAPER_SIZES, Settings, run_study
    from paper.studies.output import make_folder

    settings = Settings(
        _parse_sizes(sizes) if sizes is not None else (1, 5, 15, 30) if quick else PAPER_SIZES,
        splits or (10 if quick else 200),
        seed,
        Effort(n_chains=16, n_steps=8, small_steps=32, n_weights=400, slice_chains=16, slice_steps=25)
        if quick
        else Effort(),
    )
    console = Console()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        report = _to_bar(bar) if console.is_terminal else _to_lines
        rows = run_study(make_folder(out), settings, workers or os.cpu_count() or 1, report)
    _say(iris_figures(out, rows, settings))


def _parse_sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--sizes must be numbers with commas between, such as 1,5,30, not {text!r}") from error


def _to_bar(bar: Progress) -> Callable[[int, int, str], None]:
    task = bar.add_task("Iris", total=None)
    return lambda done, total, what: bar.update(task, completed=done, total=total, description=f"Iris: {what}")


def _to_lines(done: int, total: int, what: str) -> None:
    typer.echo(f"{done} of {total} parts: {what}")


def _say(paths: list[Path]) -> None:
    """Print the text that was written, and where everything is."""
    for path in paths:
        if path.suffix == ".md":
            typer.echo(path.read_text("utf-8"))
    typer.echo("wrote " + ", ".join(str(path) for path in paths))


if __name__ == "__main__":
    app()
