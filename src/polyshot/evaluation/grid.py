"""Read a grid file, or a folder of TOML files, as the plan of a sweep. docs/sweep.md describes both."""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyshot.errors import InputError
from polyshot.evaluation.sweep import Evaluation, PlannedRun, Sweep
from polyshot.runs.config import read_toml
from polyshot.runs.launchers import LAUNCHERS
from polyshot.system.settings import field_settings, read_settings

_Planned = tuple[str, dict[str, Any], str]  # name and settings of a run, and where they come from


@dataclass(frozen=True)
class _Grid:
    """The keys of a grid file, in addition to the tables of launchers."""

    out: str | None = None
    folder: str | None = None
    train: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Any] = field(default_factory=dict)
    run: list[Any] = field(default_factory=list)
    evaluate: list[Any] = field(default_factory=list)


def read_sweep(path: Path, out: Path | None = None) -> Sweep:
    """Read a grid file, or a folder with one TOML file of training settings per run.

    Parameters
    ----------
    path : Path
        The file or folder.
    out : Path, optional
        Folder of the run folders; overrules `out` in the file.

    Returns
    -------
    Sweep
        Everything in it has been checked. What is wrong is an InputError that names file and key.
    """
    content: dict[str, Any] = {"folder": str(path), "evaluate": {}} if path.is_dir() else read_toml(path)
    launchers = {name: content.pop(name) for name in LAUNCHERS if name in content}
    if wrong := [name for name, options in launchers.items() if not isinstance(options, dict)]:
        raise InputError(f"{path}: {wrong[0]} must be a table, such as [{wrong[0]}]")
    if isinstance(content.get("evaluate"), dict):
        content["evaluate"] = [content["evaluate"]]
    grid = _Grid(**read_settings(str(path), field_settings(_Grid), content))
    place = out or (Path(grid.out) if grid.out else None)
    if place is None:
        raise InputError(f"{path}: no folder for the runs; name one with --out, or with `out` in a grid file")
    evaluations = [_evaluation(f"{path}: [evaluate]", values) for values in grid.evaluate]
    runs = [
        PlannedRun.checked(name, values, evaluations, place.resolve(), where)
        for name, values, where in (*_of_folder(path, grid), *_of_grid(path, grid), *_singles(path, grid))
    ]
    try:
        return Sweep(place.resolve(), tuple(runs), launchers)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _of_folder(path: Path, grid: _Grid) -> Iterator[_Planned]:
    """Yield each TOML file."""
    if grid.folder is None:
        return
    folder = Path(grid.folder)
    files = sorted(folder.rglob("*.toml"))
    if not files:
        raise InputError(f"{path}: folder {folder} has no TOML files")
    for file in files:
        yield (
            file.relative_to(folder).with_suffix("").as_posix(),
            _joined(grid.train, read_toml(file), str(file)),
            str(file),
        )


def _of_grid(path: Path, grid: _Grid) -> Iterator[_Planned]:
    """Yield every combination."""
    options = grid.grid.get("options", {})
    if not isinstance(options, dict):
        raise InputError(f"{path}: [grid] options must be a table of lists, such as options.start = [...]")
    axes = {name: values for name, values in grid.grid.items() if name != "options"}
    for name, values in (*axes.items(), *options.items()):
        if not isinstance(values, list) or not values:
            raise InputError(f"{path}: [grid] {name} must be a list of at least one value, not {values!r}")
    if not grid.grid:
        return
    for chosen in itertools.product(*axes.values(), *options.values()):
        own = dict(zip(axes, chosen, strict=False))
        extra = dict(zip(options, chosen[len(axes) :], strict=True))
        differ = {n: v for n, v in {**own, **extra}.items() if len({**axes, **options}[n]) > 1}
        settings = _joined(grid.train, {**own, **({"options": extra} if extra else {})}, str(path))
        name = _name(differ or {"method": settings.get("method", "run")})
        yield name, settings, f"{path}: run {name}"


def _singles(path: Path, grid: _Grid) -> Iterator[_Planned]:
    """Yield each [[run]]."""
    for number, given in enumerate(grid.run, 1):
        if not isinstance(given, dict) or not given:
            raise InputError(f"{path}: run {number} must be a table with settings, such as [[run]]")
        own = {key: value for key, value in given.items() if key != "name"}
        where = f"{path}: run {given.get('name', number)}"
        settings = _joined(grid.train, own, where)
        options = own.pop("options", {})
        yield str(given.get("name", _name({**own, **options}))), settings, where


def _evaluation(where: str, values: Any) -> Evaluation:
    if not isinstance(values, dict):
        raise InputError(f"{where} must be a table")
    return Evaluation(**read_settings(where, field_settings(Evaluation), values))


def _joined(common: Mapping[str, Any], own: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the settings of both; those of the run overrule the common ones."""
    tables = [part.get("options", {}) for part in (common, own)]
    if wrong := [table for table in tables if not isinstance(table, dict)]:
        raise InputError(f"{where}: options must be a table, not {wrong[0]!r}")
    options = {**tables[0], **tables[1]}
    return {**common, **own, **({"options": options} if options else {})}


def _name(values: Mapping[str, Any]) -> str:
    """Return a name made of values, such as protonet-shots-5-seed-1."""
    words = [value if isinstance(value, str) else f"{name}-{value}" for name, value in values.items()]
    return re.sub(r"[^\w.+=@-]+", "-", "-".join(words)).strip("-")
