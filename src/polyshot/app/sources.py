"""Where items come from: folders of images, single images, tables, and npz files of embeddings."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polyshot.app.items import ItemKind, Items
from polyshot.app.tables import TABLES, is_missing, read_columns, read_numbers
from polyshot.data.npz import read_arrays
from polyshot.data.packed import Packed, read_packed
from polyshot.data.sets.folder import class_files, image_files
from polyshot.errors import DataError, InputError


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what. Exactly one of text, image and numbers is needed for a table.

    Attributes
    ----------
    text, image : str, optional
        The column of texts, or of paths of images; relative paths start at the table's folder.
    numbers : tuple of str
        The columns of a vector, or one column whose cells are lists.
    label : str, optional
        The column of labels; an empty cell means that the row is a query.
    id : str, optional
        The column by which answers name the rows; without it, "row 1" is the first row below the header.
    """

    text: str | None = None
    image: str | None = None
    numbers: tuple[str, ...] = ()
    label: str | None = None
    id: str | None = None


class Labelled(NamedTuple):
    """Items with their labels."""

    items: Items
    labels: list[str]


def read_labelled(path: Path, columns: Columns | None = None) -> Labelled:
    """Read labelled examples: a folder with one sub-folder per class, a table, or an npz with X and labels.

    Rows without a label are left out. One class alone is an error, as is a class without examples.
    """
    columns = columns or Columns()
    if path.is_dir():
        files = class_files(path)
        every = [file for members in files.values() for file in members]
        items = Items("images", [file.relative_to(path).as_posix() for file in every], every)
        return _checked(path, Labelled(items, [name for name in files for _ in files[name]]))
    items, labels = _read(path, columns)
    rows = [row for row, label in enumerate(labels) if label is not None]
    return _checked(path, Labelled(items.take(rows), [str(labels[row]) for row in rows]))


def read_queries(path: Path, columns: Columns | None = None) -> Items:
    """Read queries: a folder of images, also in sub-folders, one image, a table, or an npz with X.

    Labels are not used.
    """
    columns = columns or Columns()
    if path.is_dir():
        files = image_files(path)
        items = Items("images", [file.relative_to(path).as_posix() for file in files], files)
    elif path.suffix.lower() == ".npz":
        items = _npz_queries(path)
    elif path.suffix.lower() in TABLES:
        items, _ = _read_table(path, columns, [])
    elif path.is_file():
        items = Items("images", [path.name], [path])
    else:
        raise DataError(f"{path}: no such file or folder")
    if not len(items):
        what = "images" if items.kind == "images" and path.is_dir() else "rows"
        raise DataError(f"{path}: has no {what} to classify")
    return items


def read_table(path: Path, columns: Columns | None = None) -> tuple[Labelled, Items]:
    """Read a table or an npz of labelled and unlabelled rows: the examples, and the queries."""
    items, labels = _read(path, columns or Columns())
    known = [row for row, label in enumerate(labels) if label is not None]
    unknown = [row for row, label in enumerate(labels) if label is None]
    examples = _checked(path, Labelled(items.take(known), [str(labels[row]) for row in known]))
    if not unknown:
        raise DataError(
            f"{path}: every row has a label, so there is nothing to classify; leave the label of queries empty, or "
            "name their file with --query"
        )
    return examples, items.take(unknown)


def read_labels(path: Path, column: str) -> list[str | None]:
    """Read the column of labels of a table: one per row, None where the cell is empty."""
    if path.suffix.lower() not in TABLES:
        raise InputError(f"{path}: not a table, so it has no column of labels; leave out --label")
    return _labels(read_columns(path, [column])[column])


def _labels(cells: Sequence[Any]) -> list[str | None]:
    return [None if is_missing(cell) else str(cell).strip() for cell in cells]


def _read(path: Path, columns: Columns) -> tuple[Items, list[str | None]]:
    """All rows of a table or npz, with their labels, None where there is none."""
    if path.is_dir():
        raise DataError(f"{path}: a folder; name it with --support, and the images to classify with --query")
    if path.suffix.lower() == ".npz":
        packed = _embeddings(read_packed(path))
        labels = [packed.class_names[label] if label >= 0 else None for label in packed.labels.tolist()]
        return Items.of("vectors", packed.arrays["X"]), labels
    if path.suffix.lower() not in TABLES:
        raise DataError(
            f"{path}: examples are a folder with one sub-folder per class, an npz, or a {', '.join(TABLES)} file"
        )
    if columns.label is None:
        raise InputError(f"{path}: which column holds the labels? name it with --label")
    items, table = _read_table(path, columns, [columns.label])
    return items, _labels(table[columns.label])


def _read_table(path: Path, columns: Columns, others: Sequence[str]) -> tuple[Items, dict[str, list[Any]]]:
    """The items of a table, and the cells of other columns."""
    if sum((bool(columns.text), bool(columns.image), bool(columns.numbers))) != 1:
        raise InputError(
            f"{path}: which column is to be classified? name one with --text, or with --image for paths of images, or "
            "name columns of numbers with --numbers"
        )
    kind: ItemKind
    contents: Any
    others = [*others, *([columns.id] if columns.id else [])]
    if columns.numbers:
        kind = "vectors"
        contents, table = read_numbers(path, columns.numbers, others)
    else:
        column = columns.text or columns.image or ""
        table = read_columns(path, [column, *others])
        kind, contents = "text", ["" if is_missing(cell) else str(cell) for cell in table[column]]
        if columns.image:
            kind, contents = "images", [path.parent / cell for cell in contents]
    named_by = columns.id or columns.image
    names: Sequence[str] | None = [str(cell) for cell in table[named_by]] if named_by else None
    return Items.of(kind, contents, names), table


def _embeddings(packed: Packed) -> Packed:
    if not packed.has_embeddings:
        raise DataError(f"{packed.source}: holds images; only an npz of embeddings X is read here")
    return packed


def _npz_queries(path: Path) -> Items:
    arrays = read_arrays(path)
    if "X" not in arrays:
        raise DataError(f"{path}: lacks the field X, the embeddings to classify; it has {', '.join(arrays) or 'none'}")
    if not arrays["X"].size:
        raise DataError(f"{path}: has no rows to classify")
    n = len(np.atleast_1d(arrays["X"]))
    unknown = {"labels": np.zeros(n, np.int64), "class_names": np.array(["unknown"])}
    return Items.of("vectors", Packed(path, {"X": arrays["X"], **unknown}).arrays["X"])


def _checked(path: Path, examples: Labelled) -> Labelled:
    classes = Counter(examples.labels)
    if len(classes) < 2:
        found = f"only one class, {next(iter(classes))!r}" if classes else "no labelled example"
        raise DataError(f"{path}: holds {found}; examples of two classes or more are needed")
    return examples
