"""`polyshot predict`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from polyshot.cli.options import Device

_SHOWN = 40  # rows of the table
_TOP = 3  # classes per row


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder of `polyshot train`.")],
    support: Annotated[Path, typer.Option(help="A folder with one sub-folder per class, or an npz with X and labels.")],
    query: Annotated[Path, typer.Option(help="A folder of images, or an npz with X.")],
    out: Annotated[Path, typer.Option(help="Folder for predictions.csv and predictions.json.")] = Path("."),
    seed: Annotated[int, typer.Option(min=0, help="Seed of methods that draw samples.")] = 0,
    device: Device = None,
) -> None:
    """Classify queries, given a few labelled examples of each class.

    Prints a table and writes a CSV and a JSON file.
    """
    from rich.console import Console

    from polyshot.runs.trained import SCORE, load, read_queries, read_support, write_predictions

    trained = load(run, device)
    x, labels = read_support(support)
    queries, names = read_queries(query)
    adapted = trained.adapt(x, labels, seed)
    answer = adapted.predict(queries)
    about = {"support": str(support), "query": str(query), "seed": seed}
    files = write_predictions(out, trained, adapted, names, answer, **about)
    console = Console(soft_wrap=not sys.stdout.isatty())
    console.print(_table(names, answer))
    if len(names) > _SHOWN:
        typer.echo(f"{_SHOWN} of {len(names)} queries shown; all are in the files")
    if adapted.intake.note:
        typer.echo(f"images: {adapted.intake.note}")
    typer.echo(f"out-of-episode score: {SCORE}\nwrote {files[0]} and {files[1]}")


def _table(names: list[str], answer: Any) -> Any:
    from rich.table import Table
    from rich.text import Text

    from polyshot.system.text import printable

    table = Table("query", "predicted")
    for title in ("confidence", "out-of-episode"):
        table.add_column(title, justify="right")
    table.add_column("most probable")
    values, classes = answer.probabilities.topk(min(_TOP, len(answer.class_names)))
    for i, (name, label) in enumerate(zip(names[:_SHOWN], answer.labels, strict=False)):
        top = zip(values[i].tolist(), classes[i].tolist(), strict=True)
        table.add_row(
            Text(printable(name)),
            Text(printable(str(label))),
            f"{answer.confidence[i]:.3f}",
            f"{answer.out_of_episode[i]:.3f}",
            Text(printable(", ".join(f"{answer.class_names[c]} {p:.3f}" for p, c in top))),
        )
    return table
