"""`polyshot data`: which data sets there are and which are missing; import, verify, and draw an episode."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.messages import say
from polyshot.errors import DataError, InputError

app = typer.Typer(no_args_is_help=True, help="Data sets: list, describe, import, verify, and draw an episode.")

Root = Annotated[Path | None, typer.Option(help="Folder of packed files; else $POLYSHOT_DATA, else the cache folder.")]
Name = Annotated[str, typer.Argument(help="A data set, such as cub, folder:PATH or embeddings:PATH.")]


@app.command("list")
def list_(root: Root = None) -> None:
    """List the data sets: which are ready, which are missing, and how to get them."""
    from polyshot.data.loading import data_root, dataset_path
    from polyshot.data.registry import DATASETS
    from polyshot.data.scenarios import SCENARIOS

    say(f"data folder: {data_root(root)}")
    ready = {name for name in DATASETS if _is_ready(name, root)}
    say("\ndata sets")
    for name, dataset in DATASETS.items():
        state = "built in" if dataset.built_in else "yours" if dataset.takes_path else "ready"
        say(f"  {name:15}{state if name in ready or dataset.takes_path else 'MISSING':10}{dataset.summary}")
        if dataset.takes_path:
            say(f"{'':17}PATH: {dataset.accepts}")
        elif name not in ready:
            say(f"{'':17}get: {dataset.official}\n{'':17}then: polyshot data import {name} PATH")
            say(f"{'':17}PATH: {dataset.accepts}; writes {dataset_path(name, root)}")
    known = {dataset.file_name for dataset in DATASETS.values() if not dataset.takes_path}
    for file in sorted(data_root(root).glob("*.npz")):
        if file.name not in known:
            say(f"  {_own_name(file):30} {file.name}")
    say("\nscenarios")
    for name, scenario in SCENARIOS.items():
        missing = sorted({source.dataset for source in scenario.sources} - ready)
        state = f"needs {', '.join(missing)}" if missing else "ready"
        roles = zip(("train", "validation", "test"), scenario.sources, strict=True)
        say(f"  {name:22}{state:31}{', '.join(f'{role} {s.dataset}/{s.split}' for role, s in roles)}")


@app.command()
def info(name: Name, root: Root = None) -> None:
    """Describe a data set and its class splits."""
    from polyshot.data.loading import dataset_path, find_splits, read_dataset
    from polyshot.data.registry import find_dataset

    dataset = find_dataset(name)
    for head, text in (
        ("title", dataset.title),
        ("what", dataset.summary),
        ("official source", dataset.official),
        ("import takes", dataset.accepts),
        ("licence", dataset.licence),
        ("citation", dataset.citation),
    ):
        if text:
            say(f"{head}: {text}")
    if dataset.takes_path and ":" not in name:
        return
    path = dataset_path(name, root)
    if not dataset.built_in and not path.exists():
        say(f"splits: {dataset.splits.provenance}\nmissing: {path}")
        return
    packed = read_dataset(name, root)
    splits = find_splits(dataset, packed)
    say(f"splits: {splits.provenance}")
    say(f"{path}: {len(packed):,} examples of {len(packed.class_names):,} classes")
    if edition := dataset.edition(len(packed)):
        say(f"edition: {edition}")
    for split in splits.names:
        say(f"  {split}: {len(splits.classes(split, packed)):,} classes")


@app.command("import")
def import_(
    name: Name,
    path: Annotated[Path, typer.Argument(help="The official files; `polyshot data info NAME` says which.")],
    root: Root = None,
    size: Annotated[int | None, typer.Option(min=8, help="Side of stored photographs, in pixels.")] = None,
) -> None:
    """Convert official files, or your own data, to one packed file, then verify it."""
    from polyshot.data.loading import import_dataset
    from polyshot.data.registry import find_dataset
    from polyshot.system.progress import Progress

    with ExitStack() as stack:
        bars: list[Progress] = []

        def show(done: int, total: int) -> None:
            if not bars:  # the total is known from the first call on
                bars.append(stack.enter_context(Progress(f"importing {name}", total)))
            bars[0].update(done)

        target = import_dataset(name, path, root, size, show)
    say(f"wrote {target}")
    _report(f"{name}:{target}" if find_dataset(name).takes_path else name, root)


@app.command("verify")
def verify_(name: Name, root: Root = None) -> None:
    """Check fields, counts, splits and checksums, and that every image can be read."""
    _report(name, root)


@app.command()
def sheet(
    scenario: Annotated[str, typer.Argument(help="A scenario, such as omniglot-to-emnist.")],
    out: Annotated[Path, typer.Option(help="The PNG file to write.")],
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    n_way: Annotated[int, typer.Option(help="Classes.")] = 5,
    n_shot: Annotated[int, typer.Option(help="Support images per class.")] = 5,
    n_query: Annotated[int, typer.Option(help="Queries per class.")] = 5,
    n_extra_way: Annotated[int, typer.Option(help="Further classes that have queries only.")] = 0,
    episode: Annotated[int, typer.Option(min=0, help="Number of the episode.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 0,
    root: Root = None,
) -> None:
    """Draw one episode, one row per class: support images, then queries."""
    from polyshot.data.contact_sheet import draw_sheet
    from polyshot.data.episodes import EpisodeSampler
    from polyshot.data.scenarios import load_scenario

    if split not in {"train", "validation", "test"}:
        raise InputError(f"unknown split {split!r}; choose from train, validation, test")
    class_set = getattr(load_scenario(scenario, root), split)
    draw_sheet(EpisodeSampler(class_set, n_way, n_shot, n_query, seed, n_extra_way), episode, out)
    say(f"wrote {out}")


def _is_ready(name: str, root: Path | None) -> bool:
    from polyshot.data.loading import dataset_path
    from polyshot.data.registry import DATASETS

    dataset = DATASETS[name]
    return dataset.built_in or (not dataset.takes_path and dataset_path(name, root).is_file())


def _own_name(file: Path) -> str:
    """Say how to ask for a packed file that belongs to no registered data set."""
    from polyshot.data.npz import list_fields
    from polyshot.data.packed import FIELDS
    from polyshot.data.registry import DATASETS

    try:
        fields = set(list_fields(file)) & set(FIELDS)
    except DataError:
        fields = set()
    if not fields:
        return "not a data set"
    own = (dataset for dataset in DATASETS.values() if dataset.takes_path)
    name = next(dataset.name for dataset in own if (dataset.kind == "embeddings") == ("X" in fields))
    return f"{name}:{file.stem}"


def _report(name: str, root: Path | None) -> None:
    from polyshot.data.verification import verify

    checks = verify(name, root)
    for check in checks:
        say(f"{'ok    ' if check.passed else 'WRONG '} {check.what}: {check.detail}")
    if failed := [check.what for check in checks if not check.passed]:
        raise DataError(f"{name}: {len(failed)} checks failed: {', '.join(failed)}")
