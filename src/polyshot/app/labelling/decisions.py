"""What holds now: the decisions of all actions that were not undone, the later ones over the earlier."""

from collections import Counter
from collections.abc import Iterable, Sequence

from polyshot.app.labelling.store import Action, Decision
from polyshot.errors import DataError


class Decisions:
    """The decision about each item, by row.

    Parameters
    ----------
    keys : sequence of str
        The identity of each item, as in the file of labels.
    start : sequence of str or None
        The labels that came with the data.

    Attributes
    ----------
    current : dict
        Row to decision; rows without one are open.
    changed_at : dict
        Row to the version at which its decision last changed.
    confirmed : set of int
        Rows that got the same answer twice: it is no mistake.
    version : int
        Of the last action.
    """

    def __init__(self, keys: Sequence[str], start: Sequence[str | None]) -> None:
        self._rows = {key: row for row, key in enumerate(keys)}
        self._start = {row: Decision("class", label) for row, label in enumerate(start) if label is not None}
        self._actions: list[Action] = []
        self.changed_at: dict[int, int] = {}
        self.version = 0
        self._replay()

    def apply(self, actions: Iterable[Action]) -> None:
        """Take over further actions."""
        for action in actions:
            self.version = action.version
            if action.undoes is None:
                self._actions.append(action)
                self._take(action)
                touched = action
            else:
                undone = [a for a in self._actions if a.version == action.undoes]
                if not undone:
                    raise DataError(f"the file of labels is damaged: there is no action {action.undoes} to undo")
                touched = undone[0]
                self._actions.remove(touched)
                self._replay()
            self.changed_at |= dict.fromkeys(self.rows_of(touched), action.version)

    @property
    def last(self) -> Action | None:
        """The action that would be undone next."""
        return self._actions[-1] if self._actions else None

    @property
    def classes(self) -> dict[str, int]:
        """The classes in the order in which they came up, with their number of items."""
        n = Counter(decision.label for decision in self.current.values())
        return {name: n[name] for name in self._named if n[name]}

    @property
    def labels(self) -> dict[int, str]:
        """Row to class, for the rows that have one."""
        return {row: decision.label for row, decision in self.current.items() if decision.label is not None}

    @property
    def answers(self) -> dict[int, str]:
        """Row to class or "none of these", for the rows that are not skipped: what the model learns from."""
        found = {row: decision.answer for row, decision in self.current.items()}
        return {row: answer for row, answer in found.items() if answer is not None}

    @property
    def checks(self) -> list[int]:
        """The rows that are spot checks and have an answer."""
        answers = self.answers
        return [row for row in self._checks if row in answers]

    def rows_of(self, action: Action) -> list[int]:
        """The rows of an action; items that are no longer among the data are left out."""
        return [self._rows[key] for key in action.items if key in self._rows]

    @property
    def items(self) -> set[str]:
        """Every item that a person decided about, also those that are no longer among the data."""
        return {key for action in self._actions for key in action.items}

    def _replay(self) -> None:
        self.current = dict(self._start)
        self.confirmed: set[int] = set()
        self._checks: list[int] = []
        self._named = dict.fromkeys(decision.label for decision in self._start.values() if decision.label)
        for action in self._actions:
            self._take(action)

    def _take(self, action: Action) -> None:
        assert action.decision is not None
        if action.decision.label is not None:
            self._named[action.decision.label] = None
        for row in self.rows_of(action):
            same = action.decision.answer is not None and self.current.get(row) == action.decision
            (self.confirmed.add if same else self.confirmed.discard)(row)
            self.current[row] = action.decision
            if action.spot_check:
                self._checks.append(row)
