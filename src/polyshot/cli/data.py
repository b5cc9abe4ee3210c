"""`polyshot data`: what is there, what is missing, import, verify, and see an episode."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress as Bar

from polyshot.data.contact_sheet import draw_sheet
from polyshot.data.episodes import EpisodeSampler
from polyshot.data.packed import read_packed
from polyshot.data.registry import (
    DATASETS,
    data_root,
    dataset_path,
    find_dataset,
    find_splits,
    import_dataset,
    read_dataset,
)
from polyshot.data.scenarios import SCENARIOS, load_scenario
from polyshot.data.verify import verify
from polyshot.errors import DataError, InputError

app = typer.Typer(no_args_is_help=True, help="Data sets: list, info, import, verify, sheet.")

Root = Annotated[Path | None, typer.Option(help="Folder of the packed files; else $POLYSHOT_DATA, else the cache.")]
Name = Annotated[str, typer.Argument(help="A data set, such as cub, folder:PATH or embeddings:PATH.")]


@app.command("list")
def list_(root: Root = None) -> None:
    """Say what is there, what is missing, and how to get it."""
    typer.echo(f"data folder: {data_root(root)}")
    official = {name: dataset for name, dataset in DATASETS.items() if dataset.official != "yours"}
    ready = {name for name in official if name == "glyphs" or dataset_path(name, root).is_file()}
    typer.echo("\ndata sets")
    for name, dataset in official.items():
        state = "built in" if name == "glyphs" else "ready" if name in ready else "MISSING"
        typer.echo(f"  {name:15}{state:10}{dataset.summary}")
        if state == "MISSING":
            typer.echo(f"{'':17}get: {dataset.official}\n{'':17}then: polyshot data import {name} PATH")
            typer.echo(f"{'':17}PATH: {dataset.accepts}; makes {dataset_path(name, root)}")
    for dataset in (dataset for name, dataset in DATASETS.items() if name not in official):
        typer.echo(f"  {dataset.name:15}{'yours':10}{dataset.summary}\n{'':17}PATH: {dataset.accepts}")
    known = {dataset.file_name for dataset in official.values()}
    for file in sorted(data_root(root).glob("*.npz")):
        if file.name not in known and not file.name.startswith("glyphs-"):
            typer.echo(f"  {_own_name(file):30}{file.name}")
    typer.echo("\nscenarios")
    for name, sources in ((name, scenario.sources) for name, scenario in SCENARIOS.items()):
        lacking = sorted({source.dataset for source in sources} - ready)
        state = f"needs {', '.join(lacking)}" if lacking else "ready"
        parts = (f"{role} {s.dataset}/{s.split}" for role, s in zip(("train", "val", "test"), sources, strict=True))
        typer.echo(f"  {name:22}{state:31}{', '.join(parts)}")


@app.command()
def info(name: Name, root: Root = None) -> None:
    """Describe a data set and its class splits."""
    dataset = find_dataset(name)
    for head, text in (
        ("what", dataset.summary),
        ("official source", dataset.official),
        ("import takes", dataset.accepts),
        ("licence", dataset.licence),
    ):
        typer.echo(f"{head}: {text}")
    if ":" not in name and dataset.official == "yours":
        return
    path = dataset_path(name, root)
    splits = find_splits(name, root)
    typer.echo(f"splits: {splits.provenance}")
    if dataset.name != "glyphs" and not path.exists():
        typer.echo(f"missing: {path}")
        return
    packed = read_dataset(name, root)
    typer.echo(f"{path}: {len(packed):,} examples of {len(packed.class_names):,} classes")
    for split in splits.names:
        typer.echo(f"  {split}: {len(splits.classes(split, packed)):,} classes")


@app.command("import")
def import_(
    name: Name,
    path: Annotated[Path, typer.Argument(help="The official files; `polyshot data info NAME` says which.")],
    root: Root = None,
    size: Annotated[int | None, typer.Option(min=8, help="Side of the stored photographs, in pixels.")] = None,
) -> None:
    """Convert official files to the packed form, then verify it."""
    with Bar() as bar:
        task = bar.add_task(f"importing {name}", total=None)
        target = import_dataset(
            name, path, root, size, lambda done, total: bar.update(task, completed=done, total=total)
        )
    typer.echo(f"wrote {target}")
    dataset = find_dataset(name)
    _report(f"{name}:{target}" if dataset.official == "yours" else name, root)


@app.command("verify")
def verify_(name: Name, root: Root = None) -> None:
    """Check fields, counts, splits, checksums, and that every image can be read."""
    _report(name, root)


@app.command()
def sheet(
    scenario: Annotated[str, typer.Argument(help="A scenario, such as omniglot-to-emnist.")],
    out: Annotated[Path, typer.Option(help="The PNG to write.")],
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    n_way: int = 5,
    n_shot: int = 5,
    n_query: int = 5,
    n_extra_way: int = 0,
    episode: Annotated[int, typer.Option(min=0)] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    root: Root = None,
) -> None:
    """Draw one episode, a row a class: support images, then queries."""
    if split not in {"train", "validation", "test"}:
        raise InputError(f"split must be train, validation or test, not {split!r}")
    class_set = getattr(load_scenario(scenario, root), split)
    draw_sheet(EpisodeSampler(class_set, n_way, n_shot, n_query, seed, n_extra_way), episode, out)
    typer.echo(f"wrote {out}")


def _own_name(file: Path) -> str:
    """How to ask for a packed file that is no registered data set's."""
    try:
        return f"{'embeddings' if read_packed(file).kind == 'X' else 'folder'}:{file.stem}"
    except DataError:
        return "not a data set"


def _report(name: str, root: Path | None) -> None:
    checks = verify(name, root)
    for check in checks:
        typer.echo(f"{'ok    ' if check.passed else 'WRONG '} {check.what}: {check.detail}")
    if failed := [check.what for check in checks if not check.passed]:
        raise DataError(f"{name}: {len(failed)} checks failed: {', '.join(failed)}")
