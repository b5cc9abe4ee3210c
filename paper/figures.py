"""`python -m paper.figures`: the paper's comparison of likelihoods as figures, numbers and a short text.

Each command imports only what it runs, so that `--help` is fast.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.messages import ErrorsAsMessages
from polyshot.errors import InputError

app = typer.Typer(
    cls=ErrorsAsMessages,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The paper's likelihood studies: confidence, likelihoods, iris.",
)

Out = Annotated[Path, typer.Option(help="Folder to write to; it is created if needed.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random draws.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer draws: a check that it works, not numbers to cite.")]


@app.command()
def confidence(out: Out = Path("figures"), seed: Seed = 0, quick: Quick = False) -> None:
    """Section 5.1.1: the largest class probability of random logits under each likelihood."""
    from paper.studies.confidence import confidence_figure
    from paper.studies.output import make_folder

    _print(confidence_figure(make_folder(out), 5_000 if quick else 50_000, seed=seed))


@app.command()
def likelihoods(out: Out = Path("figures"), quick: Quick = False) -> None:
    """Section 5.1.2: the four likelihoods and posteriors of one example. Nothing is random here."""
    from paper.studies.likelihood_surfaces import likelihoods_figure
    from paper.studies.output import make_folder

    _print(likelihoods_figure(make_folder(out), 161 if quick else 401))


@app.command()
def iris(
    out: Out = Path("figures"),
    seed: Seed = 0,
    quick: Quick = False,
    sizes: Annotated[
        str | None, typer.Option(help="Training examples per class, such as 1,5,30. Default: the paper's ten sizes.")
    ] = None,
    splits: Annotated[int | None, typer.Option(min=2, help="Random splits per size. Default: 200.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. Default: the number of cores.")] = None,
) -> None:
    """Section 5.1.3: accuracy, Brier score, ECE and ELBO on Iris. If interrupted, run the same command to resume."""
    from paper.studies.iris import Effort
    from paper.studies.iris_figures import iris_figures
    from paper.studies.iris_study import PAPER_SIZES, IrisSettings, run_study
    from paper.studies.output import make_folder

    settings = IrisSettings(
        _parse_sizes(sizes) if sizes is not None else (1, 5, 15, 30) if quick else PAPER_SIZES,
        splits or (10 if quick else 200),
        seed,
        Effort(n_chains=16, n_steps=8, small_steps=32, n_weights=400, slice_chains=16, slice_steps=25)
        if quick
        else Effort(),
    )
    rows = run_study(make_folder(out), settings, workers or os.cpu_count() or 1, quiet=False)
    _print(iris_figures(out, rows, settings))


def _parse_sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--sizes must be whole numbers separated by commas, such as 1,5,30, not {text!r}") from error


def _print(paths: list[Path]) -> None:
    """Print the text that was written, then the list of files."""
    for path in paths:
        if path.suffix == ".md":
            typer.echo(path.read_text("utf-8"))
    typer.echo("wrote " + ", ".join(str(path) for path in paths))


if __name__ == "__main__":
    app()
