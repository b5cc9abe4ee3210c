"""`polyshot predict`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from polyshot.cli.messages import say
from polyshot.cli.options import Device
from polyshot.system.text import printable

_SHOWN = 40  # rows of the table
_TOP = 3  # classes per row
_COLOURS_OF = 100  # examples, and as many queries, whose colours are looked at


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder of `polyshot train`.")],
    support: Annotated[Path, typer.Option(help="A folder with one sub-folder per class, or an npz with X and labels.")],
    query: Annotated[Path, typer.Option(help="A folder of images, one image, or an npz with X.")],
    out: Annotated[Path, typer.Option(help="Folder for predictions.csv and predictions.json.")] = Path("."),
    seed: Annotated[int, typer.Option(min=0, help="Seed of methods that draw samples.")] = 0,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read, and name them.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite predictions that are there.")] = False,
    device: Device = None,
) -> None:
    """Classify queries, given a few labelled examples of each class.

    Prints a table and writes a CSV and a JSON file. Warns if the images look like nothing that the run was trained on.
    """
    from rich.console import Console

    from polyshot.app.outputs import check_free
    from polyshot.errors import DataError
    from polyshot.runs import prediction_files as files
    from polyshot.runs.trained import load

    if not force:
        check_free(list(files.prediction_files(out)))
    trained = load(run, device)
    examples, queries = files.read_support(support), files.read_queries(query)
    left_out: dict[str, str] = {}
    if skip_unreadable:
        (examples, lost), (queries, more) = examples.readable(), queries.readable()
        left_out = lost | more
        if not len(examples) or not len(queries):
            raise DataError(f"{query if len(examples) else support}: none of its images can be read")
    adapted = trained.adapt(examples.examples, examples.names, seed)
    answer = adapted.predict(queries.examples)
    about = {"support": str(support), "query": str(query), "seed": seed, "left_out": left_out}
    files.write_predictions(out, adapted, queries.names, answer, **about)
    console = Console(soft_wrap=not sys.stdout.isatty())
    console.print(_table(queries.names, answer))
    if len(queries) > _SHOWN:
        say(f"{_SHOWN} of {len(queries)} queries shown; all are in the files")
    if adapted.intake.note:
        say(f"images: {adapted.intake.note}")
    for name, reason in left_out.items():
        say(f"left out: {name}: {reason}")
    csv, json = files.prediction_files(out)
    say(f"out-of-episode score: {files.SCORE}\nwrote {csv} and {json}")
    files_of = [named.examples for named in (examples, queries) if isinstance(named.examples, list)]
    _warn(adapted, answer, [file for of_one in files_of for file in of_one[:_COLOURS_OF]])


def _warn(adapted: Any, answer: Any, images: list[Any]) -> None:
    """Say so if the examples and queries look like nothing that the run was trained on."""
    import torch

    from polyshot.runs.familiarity import looks_strange, n_strange
    from polyshot.runs.inputs import in_many_colours

    config, reason = adapted.run.config, ""
    colourful = sum(in_many_colours(images)) if adapted.run.method.space.kind == "characters" else 0
    if answer.familiarity is not None:
        both = torch.cat([adapted.familiarity, answer.familiarity])
        if looks_strange(both):
            reason = (
                f"{n_strange(both)} of {len(both)} examples and queries look like nothing that the run was trained on"
            )
    if 2 * colourful > len(images):
        reason = f"{colourful} of {len(images)} images are photographs in colour, and the run was trained on characters"
    if reason:
        message = (
            f"warning: {reason} ({config.scenario}), so do not trust its probabilities. `polyshot classify` takes any "
            "photos; or train a run on data like these"
        )
        say(message, err=True)
    elif answer.familiarity is None:
        say("whether the run was trained on anything like this is not known: it kept nothing to compare with")


def _table(names: list[str], answer: Any) -> Any:
    from rich.table import Table
    from rich.text import Text

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
