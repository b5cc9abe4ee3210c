"""Labels on disk: one SQLite file, which a kill at any moment leaves whole.

Every action is a row that stays: undoing one adds another. An action is on disk before the page hears of it
(write-ahead log, synchronous=FULL). One process at a time has the file.
"""

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from polyshot.app.labelling.enough import Accuracy
from polyshot.errors import DataError, InputError
from polyshot.system.text import printable

NONE = "none of these"  # the model's answer for items like those that a person put outside all classes

_APPLICATION = 0x504C4142  # "PLAB": what tells these files from other SQLite files
_FORMAT = 1
_KINDS = ("class", "none", "skip")
_DAMAGED = (sqlite3.Error, UnicodeDecodeError)  # the second when sqlite's own message quotes a damaged name
_LONGEST_NAME = 100  # characters of a class
_TABLES = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FORMAT};
CREATE TABLE source (kind TEXT NOT NULL, name TEXT NOT NULL);
CREATE TABLE actions (
    version INTEGER PRIMARY KEY, at TEXT NOT NULL, decision TEXT, class TEXT, spot_check INTEGER NOT NULL,
    undoes INTEGER REFERENCES actions
);
CREATE TABLE items (version INTEGER NOT NULL REFERENCES actions, item TEXT NOT NULL);
CREATE TABLE growth (
    n_decided INTEGER PRIMARY KEY, n_checks INTEGER NOT NULL, accuracy REAL NOT NULL, low REAL NOT NULL,
    high REAL NOT NULL
);
"""


_NAMES = {("table", name) for name in ("source", "actions", "items", "growth")}


@dataclass(frozen=True)
class Decision:
    """What a person said about an item.

    Attributes
    ----------
    kind : "class", "none" or "skip"
        It belongs to a class; it belongs to none; no answer for now.
    label : str or None
        The class.
    """

    kind: str
    label: str | None = None

    @property
    def answer(self) -> str | None:
        """What the model is to learn: the class, or that it is none of these; None for nothing."""
        return NONE if self.kind == "none" else self.label

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InputError(f"unknown decision {self.kind!r}; choose from {', '.join(_KINDS)}")
        if (self.kind == "class") != isinstance(self.label, str):
            raise InputError("a decision names a class if it is of the kind 'class', and only then")
        if self.label is not None:
            check_class_name(self.label)


@dataclass(frozen=True)
class Action:
    """One step of the person: a decision about some items, or the undoing of an earlier step.

    Attributes
    ----------
    version : int
        The number of the step.
    items : tuple of str
        What was decided about, by their keys.
    decision : Decision or None
        None if the step undoes another.
    spot_check : bool
        Whether the item was drawn at random, to test the model.
    undoes : int or None
        The step that it undoes.
    """

    version: int
    items: tuple[str, ...]
    decision: Decision | None
    spot_check: bool = False
    undoes: int | None = None


def check_class_name(name: str) -> None:
    """Refuse what could not be shown or written as the name of a class."""
    if not name or name != name.strip() or len(name) > _LONGEST_NAME or printable(name) != name:
        raise InputError(
            f"the name of a class has 1 to {_LONGEST_NAME} printable characters, with no blank at either end"
        )
    if name == NONE:
        raise InputError(f'"{NONE}" cannot be the name of a class; there is a button for it')


class LabelStore:
    """The file of labels; made if it is not there.

    Parameters
    ----------
    path : Path
    kind : str
        Kind of the items.
    name : str
        What the data are called; only for messages.
    """

    def __init__(self, path: Path, kind: str, name: str) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=0.5, isolation_level=None, check_same_thread=False)
            try:
                self._open(kind, name)
            except BaseException:
                self._connection.close()
                raise
        except (*_DAMAGED, OSError) as error:
            raise self._failure(error) from error

    def _open(self, kind: str, name: str) -> None:
        run = self._connection.execute
        run("PRAGMA trusted_schema = OFF")
        run("PRAGMA locking_mode = EXCLUSIVE")
        (application,) = run("PRAGMA application_id").fetchone()
        (n_tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
        new = not n_tables and not application
        if not new and application != _APPLICATION:
            raise DataError(f"{self.path}: not a file of `polyshot label`; name another one with --labels")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("BEGIN IMMEDIATE")
        if new:
            for statement in filter(str.strip, _TABLES.split(";")):
                run(statement)
            run("INSERT INTO source VALUES (?, ?)", [kind, name])
        run("COMMIT")
        (version,) = run("PRAGMA user_version").fetchone()
        if version != _FORMAT:
            raise DataError(f"{self.path}: written by a newer polyshot (format {version}); update polyshot")
        _require(set(run("SELECT type, name FROM sqlite_master")) == _NAMES)  # no view and no trigger of a stranger
        _require(run("PRAGMA quick_check(1)").fetchone() == ("ok",))
        (known, self.source), *more = run("SELECT kind, name FROM source").fetchall() or [(None, None)]
        _require(isinstance(self.source, str) and not more)
        if known != kind:
            raise DataError(f"{self.path}: holds labels of {known}, and these are {kind}; choose another --labels file")

    def actions(self) -> list[Action]:
        """All actions, the oldest first."""
        try:
            members: dict[int, list[str]] = {}
            for version, item in self._connection.execute("SELECT version, item FROM items ORDER BY rowid"):
                _require(isinstance(item, str))
                members.setdefault(version, []).append(item)
            rows = self._connection.execute(
                "SELECT version, decision, class, spot_check, undoes FROM actions ORDER BY version"
            ).fetchall()
            found = []
            for version, kind, label, check, undoes in rows:
                _require(kind in (None, *_KINDS) and isinstance(label, str | None))
                _require(isinstance(undoes, int) if kind is None else undoes is None)
                decision = None if kind is None else Decision(kind, label)
                found.append(Action(version, tuple(members.get(version, ())), decision, bool(check), undoes))
            return found
        except (*_DAMAGED, InputError) as error:
            raise self._failure(error) from error

    def add(self, action: Action) -> None:
        """Write one action; it is on disk when this returns."""
        kind, label = (action.decision.kind, action.decision.label) if action.decision else (None, None)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        run = self._connection.execute
        try:
            run("BEGIN IMMEDIATE")
            try:
                row = [action.version, at, kind, label, action.spot_check, action.undoes]
                run("INSERT INTO actions VALUES (?, ?, ?, ?, ?, ?)", row)
                items = [(action.version, item) for item in action.items]
                self._connection.executemany("INSERT INTO items VALUES (?, ?)", items)
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise
        except _DAMAGED as error:
            raise self._failure(error) from error

    def growth(self) -> list[Accuracy]:
        """How the accuracy grew."""
        try:
            points = [Accuracy(*row) for row in self._connection.execute("SELECT * FROM growth ORDER BY n_decided")]
            _require(all(isinstance(x, int | float) for point in points for x in point))
        except _DAMAGED as error:
            raise self._failure(error) from error
        return points

    def add_growth(self, point: Accuracy) -> None:
        """Write one more estimate of the accuracy, in place of an earlier one after as many decisions."""
        try:
            self._connection.execute("INSERT OR REPLACE INTO growth VALUES (?, ?, ?, ?, ?)", point)
        except _DAMAGED as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Close the file; everything is in it already."""
        self._connection.close()

    def _failure(self, error: Exception) -> DataError:
        if "locked" in str(error):
            return DataError(
                f"{self.path}: another `polyshot label` uses this file; end it, or choose another --labels"
            )
        return DataError(f"{self.path}: labels cannot be read or written ({error}); restore the file from a copy")


def _require(right: bool) -> None:
    if not right:
        raise sqlite3.DatabaseError("the file is damaged")
