"""Answers as files: a table, and copies of the images in one folder per class."""

import csv
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyshot.app.classification import Classification
from polyshot.app.items import Items
from polyshot.app.tables import is_parquet, parquet
from polyshot.errors import DataError, InputError
from polyshot.system.files import remove_leftovers, replacing
from polyshot.system.text import csv_cell, printable

_ROWS = 10_000  # of a Parquet row group
_LONGEST_NAME = 150  # characters of a folder's name


def check_free(paths: list[Path]) -> None:
    """Refuse to overwrite: one error names every file that is there, and every folder that is not empty."""
    there = [str(path) for path in paths if path.is_file() or (path.is_dir() and any(path.iterdir()))]
    if there:
        raise DataError(f"{', '.join(there)}: there already; choose another name, or add --force to overwrite")


def check_table(path: Path) -> None:
    """Refuse a file that cannot be written as a table, before the answers are computed."""
    if is_parquet(path):
        parquet()  # complains if its package is missing
    elif path.suffix.lower() != ".csv":
        raise InputError(f"{path}: answers are written as .csv or .parquet; choose a name that ends so")


def check_sortable(queries: Items) -> None:
    """Refuse what `sort_into` cannot sort."""
    if queries.kind != "images" or not all(isinstance(item, Path) for item in queries.contents):
        raise InputError("only image files can be sorted into folders")


def write_answers(result: Classification, path: Path) -> None:
    """Write one row per answer, as Parquet if the name ends so, else as CSV.

    Parameters
    ----------
    result : Classification
    path : Path
        Appears whole or not at all. Cells of a CSV that a spreadsheet would take for a formula get an apostrophe.
    """
    with replacing(path) as file:
        (_write_parquet if is_parquet(path) else _write_csv)(result, file)


def sort_into(result: Classification, folder: Path, *, links: bool = False) -> dict[str, int]:
    """Copy or link the images into one sub-folder per class; the originals stay where they are.

    Queries to ask about go into "ask", those outside all classes into "none of these"; if a class has that name, a
    number is added.

    Parameters
    ----------
    result : Classification
        Its queries must be image files.
    folder : Path
    links : bool
        Make symbolic links instead of copies.

    Returns
    -------
    dict
        How many files went into each sub-folder.
    """
    check_sortable(result.queries)
    names = folder_names([*result.classifier.classes, "ask", "none of these"])
    of_class = dict(zip(result.classifier.classes, names, strict=False))
    of_action = {"ask": names[-2], "none of these": names[-1]}
    for name in names:
        remove_leftovers(folder / name, (source.name for source in result.queries.contents))
    taken: dict[Path, int] = {}
    counts: dict[str, int] = {}
    for row, answer in result.by_row():
        source: Path = result.queries.contents[row]
        place = of_action.get(answer.action) or of_class[answer.predicted]
        target = unused(folder / place / source.name, taken)
        counts[place] = counts.get(place, 0) + 1
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if links:
                target.unlink(missing_ok=True)
                target.symlink_to(os.path.relpath(source.resolve(), target.parent.resolve()))
            else:
                with source.open("rb") as original, replacing(target) as copy:
                    shutil.copyfileobj(original, copy)
        except OSError as error:
            raise DataError(f"{source}: cannot be put into {target.parent} ({error.strerror})") from error
    return counts


def _columns(result: Classification) -> dict[str, Any]:
    """The columns of the table by name: what each says about (row, answer)."""
    classifier, levels, queries = result.classifier, result.levels, result.queries
    labels = classifier.labels
    columns: dict[str, Any] = {"item": lambda row, answer: answer.name}
    if queries.kind == "text":
        columns["text"] = lambda row, answer: queries.contents[row]
    columns |= {
        "action": lambda row, answer: answer.action,
        "predicted": lambda row, answer: answer.predicted,
        "probability": lambda row, answer: answer.probability,
    }
    if result.next_to_label:
        rank = {row: k for k, row in enumerate(result.next_to_label, start=1)}
        columns["next_to_label"] = lambda row, answer: rank.get(row)
    if levels.confidence is not None:
        columns["prediction_set"] = lambda row, answer: " | ".join(answer.prediction_set)
    if levels.false_alarm is not None:
        columns["outlier_p_value"] = lambda row, answer: answer.outlier_p_value
    if levels.n_reasons:
        columns["nearest_examples"] = lambda row, answer: " | ".join(
            f"{classifier.described(k)} ({labels[k]})" for k in answer.nearest
        )
    for k, name in enumerate(classifier.classes):
        columns[f"p({name})"] = lambda row, answer, k=k: answer.probabilities[k]
    return columns


def _rows(result: Classification, columns: dict[str, Any]) -> Iterator[list[Any]]:
    for row, answer in result.by_row():
        yield [column(row, answer) for column in columns.values()]


def _write_csv(result: Classification, file: Any) -> None:
    columns = _columns(result)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([csv_cell(name) for name in columns])
    for row in _rows(result, columns):
        writer.writerow([csv_cell(cell) if isinstance(cell, str) else cell for cell in row])
    text.detach()


def _write_parquet(result: Classification, file: Any) -> None:
    module = parquet()
    import pyarrow

    columns = _columns(result)
    numbers = ("probability", "outlier_p_value", *(f"p({name})" for name in result.classifier.classes))
    known = dict.fromkeys(numbers, pyarrow.float64()) | {"next_to_label": pyarrow.int64()}
    types = {name: known.get(name, pyarrow.string()) for name in columns}
    schema = pyarrow.schema([(printable(name), kind) for name, kind in types.items()])
    with module.ParquetWriter(file, schema) as writer:
        rows: list[list[Any]] = []
        for row in _rows(result, columns):
            rows.append([printable(cell, "\n\t") if isinstance(cell, str) else cell for cell in row])
            if len(rows) == _ROWS:
                writer.write_table(_table(rows, schema))
                rows = []
        if rows:
            writer.write_table(_table(rows, schema))


def _table(rows: list[list[Any]], schema: Any) -> Any:
    import pyarrow

    return pyarrow.Table.from_arrays(
        [pyarrow.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)],
        schema=schema,
    )


def folder_names(names: list[str]) -> list[str]:
    """Different names that are safe as folders on any system."""
    found: list[str] = []
    for name in names:
        safe = "".join("_" if c in '/\\:*?"<>|' else c for c in printable(name))[:_LONGEST_NAME].strip(" .") or "_"
        number = 2
        unique = safe
        while unique.lower() in (other.lower() for other in found):
            unique, number = f"{safe} {number}", number + 1
        found.append(unique)
    return found


def unused(path: Path, taken: dict[Path, int]) -> Path:
    """The path, or one with a number if a query of this call has it."""
    free = path
    while free in taken:
        taken[path] += 1
        free = path.with_stem(f"{path.stem}-{taken[path]}")
    taken[free] = 1
    return free
