"""A labelling session: items, decisions, and a thread that learns from them while the person goes on."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyshot.app.items import Items
from polyshot.app.labelling.decisions import Decisions
from polyshot.app.labelling.enough import CHECK_EVERY, Accuracy, Stability
from polyshot.app.labelling.learning import N_NEXT, Learned, answer_open, look_closer
from polyshot.app.labelling.ranking import first_to_label
from polyshot.app.labelling.store import Action, Decision, LabelStore, check_class_name
from polyshot.errors import DataError, InputError
from polyshot.estimator import OneVsEachClassifier

_MOST_CLASSES = 200
_SEED = 1  # of the order of spot checks


class Stale(InputError):
    """The items were changed in another tab after this one last looked."""

    def __init__(self) -> None:
        super().__init__("this was changed in another tab; look at it again")


class Session:
    """All that the page needs; every method may be called from any thread.

    Parameters
    ----------
    items : Items
    vectors : float32 array [n, d]
        One row per item.
    path : Path
        The file of labels; the session continues with what is in it.
    name : str
        What the data are called.
    start : sequence of str or None, optional
        Labels that came with the data.
    encoder : str, Encoder or callable, optional
        What made the vectors; kept in an exported model.

    Attributes
    ----------
    keys : list of str
        An identity for each item that lasts when others come or go.
    learned : Learned
        The newest result of the learning thread.
    problem : str or None
        Why the last attempt to learn failed.
    stability : Stability
        How many answers the latest decisions changed.
    """

    def __init__(
        self,
        items: Items,
        vectors: NDArray[np.float32],
        path: Path,
        *,
        name: str,
        start: Sequence[str | None] | None = None,
        encoder: object = None,
    ) -> None:
        self.items, self.vectors, self.name, self.encoder = items, vectors, name, encoder
        self.keys = item_keys(items)
        start = start or [None] * len(items)
        for label in {label for label in start if label is not None}:
            check_class_name(label)
        self._store = LabelStore(path, items.kind, name)
        self._decisions = Decisions(self.keys, start)
        try:
            self._decisions.apply(self._store.actions())
            self._check_same_data()
            self._growth = {point.n_decided: point for point in self._store.growth()}
        except BaseException:
            self._store.close()
            raise
        self._first = first_to_label(vectors)
        self._drawn = np.random.default_rng(_SEED).permutation(len(items)).tolist()
        self.stability = Stability()
        self.learned = answer_open(vectors, -1, {}, set(self._decisions.current), self._first, None)
        self.problem: str | None = None
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._listeners: set[Callable[[], None]] = set()
        self._thread = threading.Thread(target=self._learn, name="polyshot label: learning", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """The file of labels."""
        return self._store.path

    @property
    def decisions(self) -> Decisions:
        """What holds now; read it inside `reading`."""
        return self._decisions

    @property
    def reading(self) -> threading.Condition:
        """A context in which nothing changes."""
        return self._changed

    @property
    def growth(self) -> list[Accuracy]:
        """How the accuracy grew, up to the present number of decisions."""
        now = len(self._decisions.current)
        return [self._growth[n] for n in sorted(self._growth) if n <= now]

    @property
    def spot_check(self) -> int | None:
        """The row that tests the model next: the first open one in an order drawn at random beforehand.

        None while there is no model.
        """
        decided = self._decisions.current
        row = next((row for row in self._drawn if row not in decided), None)
        return row if row is not None and self.learned.guess(row) else None

    def queue(self) -> list[int]:
        """Rows to show: the one most worth a label first, every fourth a spot check, and skipped ones at the end."""
        with self._changed:
            decided, check = self._decisions.current, self.spot_check
            found = [row for row in self.learned.order if row not in decided and row != check]
            if not found:  # the person is faster than the learning thread
                found = [row for row in self._first if row not in decided and row != check][:N_NEXT]
            if check is not None:
                found.insert((CHECK_EVERY - 1 - len(decided)) % CHECK_EVERY, check)
            skipped = [row for row, decision in decided.items() if decision.kind == "skip"]
            return found or sorted(skipped, key=self._decisions.changed_at.__getitem__)[:N_NEXT]

    def decide(self, rows: Sequence[int], decision: Decision, seen: int) -> None:
        """Take a decision about some rows, which the person saw as they were at version `seen`."""
        with self._changed:
            now = self._decisions
            if not rows or len(set(rows)) < len(rows) or not all(0 <= row < len(self.items) for row in rows):
                raise InputError(f"rows are different numbers from 0 to {len(self.items) - 1}, at least one")
            if any(now.changed_at.get(row, 0) > seen for row in rows):
                raise Stale
            if decision.label is not None and decision.label not in now.classes and len(now.classes) >= _MOST_CLASSES:
                raise InputError(f"there are {_MOST_CLASSES} classes already, which is the most")
            self._add([self.keys[row] for row in rows], decision, spot_check=list(rows) == [self.spot_check])

    def rename(self, old: str, new: str, seen: int) -> None:
        """Give all items of one class to another, which may exist already."""
        with self._changed:
            rows = [row for row, label in self._decisions.labels.items() if label == old]
            if not rows:
                raise InputError(f"there is no class {old!r}")
            self.decide(rows, Decision("class", new), seen)

    def undo(self, seen: int) -> None:
        """Take back the last action, if it is the one that the person saw."""
        with self._changed:
            last = self._decisions.last
            if last is None:
                raise InputError("there is nothing to undo")
            if self._decisions.version != seen:
                raise Stale
            self._add(last.items, None, undoes=last.version)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after every change; returns what ends that."""
        with self._changed:
            self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until everything decided so far is learned."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self.learned.complete and self.learned.version == self._decisions.version, seconds
            )
        if not done or self.problem:
            raise DataError(self.problem or f"learning takes longer than {seconds:g} seconds")

    def close(self) -> None:
        """End the thread and close the file."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._store.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(
        self, items: Sequence[str], decision: Decision | None, *, spot_check: bool = False, undoes: int | None = None
    ) -> None:
        action = Action(self._decisions.version + 1, tuple(items), decision, spot_check, undoes)
        self._store.add(action)
        self._decisions.apply([action])
        self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        for listener in list(self._listeners):
            listener()

    def _learn(self) -> None:
        """Learn whenever something was decided, until the session is closed."""
        OneVsEachClassifier().fit([[0.0], [1.0]], ["a", "b"])  # loads compiled code before the first label needs it
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self.learned.version != self._decisions.version)
                if self._closed:
                    return
                version, labels = self._decisions.version, self._decisions.answers
                decided, confirmed = set(self._decisions.current), set(self._decisions.confirmed)
                checks = self._decisions.checks
            try:
                answers = answer_open(self.vectors, version, labels, decided, self._first, self.learned)
                self._publish(answers, len(decided))
                whole = look_closer(self.vectors, answers, confirmed, checks, partial(self._is_newer, version))
                if whole is not None:
                    self._publish(whole, len(decided))
            except Exception as error:  # shown on the page: the labels are safe, only the answers are old
                with self._changed:
                    self.learned = replace(self.learned, version=version, complete=True)
                    self.problem = f"the answers could not be updated: {error}"
                    self._tell()

    def _is_newer(self, version: int) -> bool:
        """Whether something was decided since, or the session is over."""
        return self._closed or self._decisions.version != version

    def _publish(self, learned: Learned, n_decided: int) -> None:
        answers = np.full(len(self.items), "", object)
        if learned.model is not None and len(learned.rows):
            answers[learned.rows] = np.array(learned.classes, object)[learned.probabilities.argmax(1)]
        with self._changed:
            self.learned, self.problem = learned, None
            self.stability.add(n_decided, answers)
            point = learned.accuracy
            if learned.complete and point is not None and self._growth.get(point.n_decided) != point:
                self._growth[point.n_decided] = point
                self._store.add_growth(point)
            self._tell()

    def _check_same_data(self) -> None:
        """Refuse a file of labels of other data; a few items that are gone do no harm."""
        decided = self._decisions.items
        missing = decided - set(self.keys)
        if 2 * len(missing) > len(decided):
            raise DataError(
                f"{self._store.path}: holds labels of other data, {self._store.source}: {len(missing):,} of its "
                f"{len(decided):,} labelled items are not in {self.name}; choose another file with --labels"
            )


def item_keys(items: Items) -> list[str]:
    """An identity for each item that lasts when others come or go.

    Of a text it is the text; of an image its name and the size of its file; equal items are counted.
    """
    seen: Counter[str] = Counter()
    keys = []
    for name, content in zip(items.names, items.contents, strict=True):
        whole = content if items.kind == "text" else f"{name}\0{content.stat().st_size}"
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        seen[digest] += 1
        keys.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return keys
