"""`polyshot train`, `polyshot predict` and `polyshot methods`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyshot.errors import InputError
from polyshot.methods import METHODS
from polyshot.runs.config import QUICK, TrainingConfig, read_toml
from polyshot.runs.distributed import leads
from polyshot.runs.trained import SCORE, Answer, load, read_queries, read_support, write_predictions
from polyshot.runs.trainer import train as train_run
from polyshot.system.settings import keyword_settings

_SHOWN = 40  # rows of a table
_TOP = 3  # classes a row

Root = Annotated[Path | None, typer.Option(help="Folder of the packed files; else $POLYSHOT_DATA, else the cache.")]


def train(
    out: Annotated[Path, typer.Option(help="The run folder; an unfinished run in it goes on.")],
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file with the same settings; flags overrule it.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="`polyshot methods` lists them.")] = None,
    scenario: Annotated[str | None, typer.Option(help="`polyshot data list` lists them.")] = None,
    shots: Annotated[int | None, typer.Option(help="Support examples a class (default 5).")] = None,
    ways: Annotated[int | None, typer.Option(help="Classes an episode (default 5).")] = None,
    queries: Annotated[
        int | None, typer.Option(help="Queries a class (default 16, or what the classes have left).")
    ] = None,
    objective: Annotated[str | None, typer.Option(help="ml or pl, for the GP methods that have both.")] = None,
    kernel: Annotated[str | None, typer.Option(help="Kernel of a GP method.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Another option of the method, as NAME=VALUE.")] = None,
    backbone: Annotated[str | None, typer.Option(help="conv4 or identity (default: the method's own).")] = None,
    epochs: Annotated[int | None, typer.Option(help="Default: 600 for 1-shot, 400 for more.")] = None,
    episodes_per_epoch: Annotated[int | None, typer.Option(help="Default: 100.")] = None,
    budget: Annotated[str | None, typer.Option(help=f"paper, or quick: one {QUICK}th of its epochs.")] = None,
    meta_batch: Annotated[int | None, typer.Option(help="Episodes a step (default 1; MAML and its kin 4).")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the network (default 0.001).")] = None,
    validate_every: Annotated[int | None, typer.Option(help="Epochs between validations (default 1).")] = None,
    validation_episodes: Annotated[int | None, typer.Option(help="Default: 100.")] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many validations without a better one.")] = None,
    rotations: Annotated[bool | None, typer.Option(help="Four training classes of each character.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default: 0.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch (default: all cores).")] = None,
    device: Annotated[str | None, typer.Option(help="Default: cuda where there is one, else cpu.")] = None,
    root: Root = None,
) -> None:
    """Train a method; the same command goes on where an interrupted run stopped. Defaults: the paper's protocol."""
    values = read_toml(config) if config else {}
    given: dict[str, Any] = {
        "method": method, "scenario": scenario, "shots": shots, "ways": ways, "queries": queries,
        "objective": objective, "kernel": kernel, "backbone": backbone, "epochs": epochs,
        "episodes_per_epoch": episodes_per_epoch, "budget": budget, "meta_batch": meta_batch,
        "learning_rate": learning_rate, "validate_every": validate_every, "validation_episodes": validation_episodes,
        "patience": patience, "rotations": rotations, "seed": seed,
    }  # fmt: skip
    values |= {name: value for name, value in given.items() if value is not None}
    values["options"] = {**values.get("options", {}), **dict(_pair(text) for text in option or [])}
    where = str(config) if config else "polyshot train"
    try:
        train_run(TrainingConfig.from_mapping(values, where), out, root, device=device, threads=threads)
    except KeyboardInterrupt:
        if leads():
            typer.echo(f"interrupted; the same command goes on from the last checkpoint in {out}", err=True)
        raise typer.Exit(130) from None
    if leads():
        typer.echo(f"trained: {out}")


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder of `polyshot train`.")],
    support: Annotated[Path, typer.Option(help="A folder with one sub-folder a class, or an npz with X and labels.")],
    query: Annotated[Path, typer.Option(help="A folder of images, or an npz with X.")],
    out: Annotated[Path, typer.Option(help="Where predictions.csv and predictions.json go.")] = Path("."),
    seed: Annotated[int, typer.Option(min=0, help="Of methods that draw samples.")] = 0,
    device: Annotated[str | None, typer.Option(help="Default: cuda where there is one, else cpu.")] = None,
) -> None:
    """Classify queries given a few labelled examples of each class: a table, a CSV and a JSON file."""
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
        typer.echo(f"{_SHOWN} of {len(names)} queries shown, all are in the files")
    if adapted.intake.note:
        typer.echo(f"images: {adapted.intake.note}")
    typer.echo(f"out-of-episode score: {SCORE}\nwrote {files[0]} and {files[1]}")


def _table(names: list[str], answer: Answer) -> Table:
    table = Table("query", "predicted")
    for title in ("confidence", "out-of-episode"):
        table.add_column(title, justify="right")
    table.add_column("most probable")
    values, classes = answer.probabilities.topk(min(_TOP, len(answer.class_names)))
    for i, (name, label) in enumerate(zip(names[:_SHOWN], answer.labels, strict=False)):
        top = zip(values[i].tolist(), classes[i].tolist(), strict=True)
        table.add_row(
            Text(name),
            Text(str(label)),
            f"{answer.confidence[i]:.3f}",
            f"{answer.out_of_episode[i]:.3f}",
            Text(", ".join(f"{answer.class_names[c]} {p:.3f}" for p, c in top)),
        )
    return table


def methods() -> None:
    """List the methods with their options and defaults."""
    for name, method in METHODS.items():
        citation = (sys.modules[method.__module__].__doc__ or "").partition("\n\n")[0]
        typer.echo(f"{name}: {(method.__doc__ or '').splitlines()[0]}\n  {' '.join(citation.split())}")
        for option in keyword_settings(method).values():
            typer.echo(f"    {option.name} = {option.default}   ({option.kind})")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--option takes NAME=VALUE, not {text!r}")
    return name, value
