"""Columns of a table: CSV with commas, semicolons or tabs, or Parquet. Only the columns asked for are kept."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyshot.errors import DataError

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
_PARQUET = (".parquet", ".pq")
_LONGEST_CELL = 2**24  # characters
_DELIMITERS = ",;\t"


def is_parquet(path: Path) -> bool:
    """Whether the name of the file ends as those of Parquet files do."""
    return path.suffix.lower() in _PARQUET


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """The cells of each column; one error names all columns that the table does not have."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return _read_parquet(path, columns) if is_parquet(path) else _read_csv(path, columns)


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


def read_numbers(path: Path, columns: Sequence[str], table: dict[str, list[Any]]) -> NDArray[np.float64]:
    """Numbers [n, d]: one per column, or, if there is one column, lists in its cells, as in Parquet or JSON text.

    Cells that hold no number are named in one error.
    """
    wrong: list[str] = []
    rows: list[list[float]] = []
    for number, cells in enumerate(zip(*(table[column] for column in columns), strict=True), start=1):
        try:
            rows.append(_numbers(cells))
        except (TypeError, ValueError):
            wrong.append(f"  row {number}: {', '.join(map(repr, cells))[:80]}")
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise DataError(f"{path}: the rows of {', '.join(columns)} have {min(lengths)} to {max(lengths)} numbers")
    if wrong:
        more = f"\n  and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        listing = "\n".join(wrong[:20])
        raise DataError(
            f"{path}: {len(wrong)} rows hold something else than numbers; fill or drop them:\n{listing}{more}"
        )
    return np.array(rows, np.float64).reshape(len(rows), -1)


def _numbers(cells: Sequence[Any]) -> list[float]:
    if len(cells) == 1 and isinstance(cells[0], str) and cells[0].lstrip().startswith("["):
        return [float(x) for x in json.loads(cells[0])]
    if len(cells) == 1 and isinstance(cells[0], list):
        return [float(x) for x in cells[0]]
    return [float(x) for x in cells]


def _read_parquet(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    module = parquet()
    try:
        names = module.read_schema(path).names
        present = [column for column in dict.fromkeys(columns) if names.count(column) == 1]
        table: dict[str, list[Any]] = module.read_table(path, columns=present).to_pydict()
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(f"{path}: not a readable Parquet file ({error})") from error
    _check_columns(path, columns, names)
    return table


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


def _read_csv(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    head, delimiter = _read_head(path)
    _check_columns(path, columns, head)
    places = {column: head.index(column) for column in columns}
    table: dict[str, list[Any]] = {column: [] for column in places}
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            next(reader, None)
            for row in reader:
                if row:
                    for column, place in places.items():
                        table[column].append(row[place] if place < len(row) else "")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is not readable CSV ({error})") from error
    finally:
        csv.field_size_limit(before)
    return table


def _check_columns(path: Path, columns: Sequence[str], there: Sequence[str]) -> None:
    if missing := [column for column in columns if column not in there]:
        raise DataError(f"{path}: has no column {', '.join(missing)}; its columns are {', '.join(there) or 'none'}")
    if repeated := [column for column in columns if list(there).count(column) > 1]:
        raise DataError(f"{path}: has more than one column {', '.join(repeated)}; rename all but one")


def _not_utf8(path: Path, error: UnicodeDecodeError) -> DataError:
    return DataError(f"{path}: not UTF-8 text ({error.reason}); save it as CSV in UTF-8")
