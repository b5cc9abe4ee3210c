"""Vectors on disk, by content and model, so that nothing is encoded twice.

One SQLite file. A batch of vectors is one transaction: after a crash or `kill -9` it is there whole or not at all, and
any number of processes can read and write at once. A cache that cannot be used (no space, no permission, damaged)
costs a warning and the time to encode, never the result.
"""

import sqlite3
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from polyshot.data.loading import cache_folder
from polyshot.encoders.base import Vectors
from polyshot.errors import DataError

_FILE = "vectors-1.sqlite"
_WAIT = 60.0  # seconds for another process to finish its transaction
_KEYS = 500  # in one query; SQLite takes 999 or more
_TABLES = """
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, title TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS vectors (
    model INTEGER NOT NULL REFERENCES models, item BLOB NOT NULL, vector BLOB NOT NULL, checksum INTEGER NOT NULL,
    UNIQUE (model, item)
);
"""
_DAMAGED = (sqlite3.Error, UnicodeDecodeError)  # the second when sqlite's own message quotes a damaged name
Result = TypeVar("Result")


class Usage(NamedTuple):
    """What the cache holds of one model."""

    title: str
    n_vectors: int
    n_bytes: int


class VectorCache:
    """The vectors that were computed so far.

    Parameters
    ----------
    folder : path, optional
        Where the file is; `encoders` in polyshot's cache folder ($XDG_CACHE_HOME or ~/.cache) unless given.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from polyshot.encoders import VectorCache
    >>> with TemporaryDirectory() as folder:
    ...     cache = VectorCache(folder)
    ...     cache.usage()
    []
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.path = Path(folder or cache_folder() / "encoders") / _FILE
        self._connection: sqlite3.Connection | None = None
        self._usable = True

    def get(self, model: str, items: Sequence[bytes]) -> dict[bytes, Vectors]:
        """The vectors that are there, by item; a damaged one counts as not there."""
        return self._try(lambda connection: _select(connection, model, items), {})

    def put(self, model: str, title: str, vectors: Mapping[bytes, Vectors]) -> None:
        """Keep vectors: all of them, or none if the process dies before the end."""
        self._try(lambda connection: _insert(connection, model, title, vectors), None)

    def usage(self) -> list[Usage]:
        """How many vectors and bytes there are of each model."""
        query = (
            "SELECT title, count(*), sum(length(vector)) FROM vectors JOIN models ON models.id = model "
            "GROUP BY model ORDER BY title"
        )
        return self._try(lambda connection: [Usage(*row) for row in connection.execute(query)], [])

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def clear(self) -> None:
        """Delete every vector, also while other processes use the cache; a damaged file is deleted itself."""
        self.close()
        if not self.path.is_file():
            return
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as connection:
                connection.executescript(_TABLES)
                connection.executescript("DELETE FROM vectors; DELETE FROM models; VACUUM;")
                damaged = _schema(connection) != _schema(None)
        except _DAMAGED as error:
            if "locked" in str(error):
                raise DataError(f"{self.path}: cannot be cleared ({error}); end the processes that use it") from error
            damaged = True
        if damaged:
            try:
                self.path.unlink()
                self.path.with_name(f"{_FILE}-journal").unlink(missing_ok=True)
            except OSError as error:
                raise DataError(f"{self.path}: cannot be deleted ({error.strerror})") from error

    def close(self) -> None:
        """Close the file; it is opened again when needed."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._usable = None, True

    def __enter__(self) -> "VectorCache":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try(self, function: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """The function's value; `otherwise` after a warning, and from then on, where the file cannot be used."""
        if not self._usable:
            return otherwise
        try:
            if self._connection is None:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
                self._connection.executescript(_TABLES)
            return function(self._connection)
        except (*_DAMAGED, OSError) as error:
            self.close()
            self._usable = False
            warnings.warn(
                f"{self.path}: the cache cannot be used ({error}), so everything is encoded again; if the file is "
                "damaged, polyshot.encoders.VectorCache().clear() deletes it; cache=PATH puts it elsewhere",
                stacklevel=2,
            )
            return otherwise


def _schema(connection: sqlite3.Connection | None) -> list[tuple[str, str | None]]:
    """The tables of a file; without one, those that a new file has."""
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(_TABLES)
        return (connection or new).execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def _select(connection: sqlite3.Connection, model: str, items: Sequence[bytes]) -> dict[bytes, Vectors]:
    found: dict[bytes, Vectors] = {}
    for first in range(0, len(items), _KEYS):
        keys = items[first : first + _KEYS]
        rows = connection.execute(
            "SELECT item, vector, checksum FROM vectors JOIN models ON models.id = model "  # nosec B608 # no text of users
            f"WHERE digest = ? AND item IN ({','.join('?' * len(keys))})",
            [model, *keys],
        )
        found |= {
            item: np.frombuffer(content, "<f4")
            for item, content, sum_ in rows
            if isinstance(content, bytes) and zlib.crc32(content) == sum_
        }
    return found


def _insert(connection: sqlite3.Connection, model: str, title: str, vectors: Mapping[bytes, Vectors]) -> None:
    contents = {item: vector.astype("<f4").tobytes() for item, vector in vectors.items()}
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("INSERT OR IGNORE INTO models (digest, title) VALUES (?, ?)", [model, title])
        (number,) = connection.execute("SELECT id FROM models WHERE digest = ?", [model]).fetchone()
        connection.executemany(
            "INSERT OR REPLACE INTO vectors (model, item, vector, checksum) VALUES (?, ?, ?, ?)",
            [(number, item, content, zlib.crc32(content)) for item, content in contents.items()],
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
