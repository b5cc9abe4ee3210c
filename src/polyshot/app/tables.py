"""Columns of a table: CSV with commas, semicolons or tabs, or Parquet. Only the columns asked for are kept."""

import csv
import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyshot.errors import DataError

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
_PARQUET = (".parquet", ".pq")
_LONGEST_CELL = 2**24  # characters
_DELIMITERS = ",;\t"
_ROWS = 10_000  # of a Parquet file, read at once
_SHOWN = 20  # wrong rows that a message names


def is_parquet(path: Path) -> bool:
    """Whether the name of the file ends as those of Parquet files do."""
    return path.suffix.lower() in _PARQUET


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """The cells of each column; one error names all columns that the table does not have."""
    table: dict[str, list[Any]] = {column: [] for column in columns}
    for row in _rows(path, list(table)):
        _append(table, row)
    return table


def read_numbers(
    path: Path, columns: Sequence[str], others: Sequence[str] = ()
) -> tuple[NDArray[np.float32], dict[str, list[Any]]]:
    """Numbers [n, d] and the cells of other columns, row by row, so that large tables fit into memory.

    The numbers are one per column, or, if there is one column, lists in its cells, as in Parquet or JSON text. Cells
    that hold no number are named in one error.
    """
    names = list(dict.fromkeys([*columns, *others]))
    places = [names.index(column) for column in columns]
    table: dict[str, list[Any]] = {column: [] for column in others}
    of_others = [names.index(column) for column in table]
    numbers, lengths, wrong, n_wrong = array("f"), set(), list[str](), 0
    for number, row in enumerate(_rows(path, names), start=1):
        cells = [row[place] for place in places]
        try:
            found = _numbers(cells)
        except (TypeError, ValueError, RecursionError):  # the last one from JSON within JSON
            n_wrong += 1
            if n_wrong <= _SHOWN:
                wrong.append(f"  row {number}: {', '.join(map(repr, cells))[:80]}")
            continue
        numbers.extend(found)
        lengths.add(len(found))
        _append(table, [row[place] for place in of_others])
    if len(lengths) > 1:
        raise DataError(f"{path}: the rows of {', '.join(columns)} have {min(lengths)} to {max(lengths)} numbers")
    if n_wrong:
        listing = "\n".join([*wrong, *([f"  and {n_wrong - _SHOWN} more"] if n_wrong > _SHOWN else [])])
        raise DataError(f"{path}: {n_wrong} rows hold something else than numbers; fill or drop them:\n{listing}")
    return np.asarray(numbers).reshape(-1, max(lengths, default=1)), table


def _append(table: dict[str, list[Any]], row: Sequence[Any]) -> None:
    for cells, cell in zip(table.values(), row, strict=True):
        cells.append(cell)


def _rows(path: Path, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
    """The cells of each row, in the order of the columns."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return _parquet_rows(path, columns) if is_parquet(path) else _csv_rows(path, columns)


def parquet() -> Any:
    """The module that reads and writes Parquet."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DataError("Parquet files need the package pyarrow; run: pip install pyarrow, or use a CSV file") from None
    return pyarrow.parquet


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty: no text, None or NaN."""
    return cell is None or (isinstance(cell, float) and cell != cell) or (isinstance(cell, str) and not cell.strip())


def _numbers(cells: Sequence[Any]) -> list[float]:
    if len(cells) == 1 and isinstance(cells[0], str) and cells[0].lstrip().startswith("["):
        return [float(x) for x in json.loads(cells[0])]
    if len(cells) == 1 and isinstance(cells[0], list):
        return [float(x) for x in cells[0]]
    return [float(x) for x in cells]


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
    module = parquet()
    try:
        with path.open("rb") as content:  # pyarrow opens no file whose name is not UTF-8
            file = module.ParquetFile(content)
            names = file.schema_arrow.names
            present = [column for column in columns if names.count(column) == 1]
            for batch in file.iter_batches(_ROWS, columns=present) if len(present) == len(columns) else ():
                yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(f"{path}: not a readable Parquet file ({error})") from error
    _check_columns(path, columns, names)


def _read_head(path: Path) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline(_LONGEST_CELL)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error
    delimiter = max(_DELIMITERS, key=head.count)
    return next(csv.reader([head], delimiter=delimiter), []), delimiter


def _csv_rows(path: Path, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
    head, delimiter = _read_head(path)
    _check_columns(path, columns, head)
    places = [head.index(column) for column in columns]
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            next(reader, None)
            for row in reader:
                if row:
                    yield [row[place] if place < len(row) else "" for place in places]
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is not readable CSV ({error})") from error
    finally:
        csv.field_size_limit(before)


def _check_columns(path: Path, columns: Sequence[str], there: Sequence[str]) -> None:
    if missing := [column for column in columns if column not in there]:
        raise DataError(f"{path}: has no column {', '.join(missing)}; its columns are {', '.join(there) or 'none'}")
    if repeated := [column for column in columns if list(there).count(column) > 1]:
        raise DataError(f"{path}: has more than one column {', '.join(repeated)}; rename all but one")


def _not_utf8(path: Path, error: UnicodeDecodeError) -> DataError:
    return DataError(f"{path}: not UTF-8 text ({error.reason}); save it as CSV in UTF-8")
