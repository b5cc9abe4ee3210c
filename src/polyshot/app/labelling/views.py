"""What the page is told, as plain dictionaries for JSON."""

from collections import Counter
from typing import Any

import numpy as np

from polyshot.app.labelling.enough import verdict
from polyshot.app.labelling.session import Session
from polyshot.app.labelling.store import Decision
from polyshot.errors import InputError

_LONGEST_TEXT = 20_000  # characters of a text that is to be labelled
_EXCERPT = 400  # characters of a text in a list
_PAGE = 60  # items of a list at a time
_BINS = 10  # of the confidence


def overview(session: Session, target: float) -> dict[str, Any]:
    """All that the page shows but the lists of items: sent after every change."""
    with session.reading:
        learned, decisions = session.learned, session.decisions
        kinds = Counter(decision.kind for decision in decisions.current.values())
        n_open = len(session.items) - len(decisions.current)
        growth = session.growth
        changed = session.stability.changed
        predicted = _predicted(session)
        return {
            "name": session.name,
            "kind": session.items.kind,
            "version": decisions.version,
            "learned": learned.version,
            "complete": learned.complete and learned.version == decisions.version,
            "problem": session.problem,
            "n": {
                "all": len(session.items),
                "open": n_open,
                **{kind: kinds[kind] for kind in ("class", "none", "skip")},
            },
            "classes": [
                {"name": name, "n": n, "predicted": predicted.get(name, 0)} for name, n in decisions.classes.items()
            ],
            "last": _last(session),
            "accuracy": [point._asdict() for point in growth],
            "changed": changed,
            "target": target,
            "verdict": verdict(growth[-1] if growth else None, changed, n_open, target),
            "confidence": _confidence(session),
            "queue": [_queued(session, row) for row in session.queue()],
            "suspects": [
                {**item(session, row), "p": p}
                for row, p in learned.suspects
                if row in decisions.answers and row not in decisions.confirmed
            ],
            "strangers": [
                [item(session, row) for row in group if row not in decisions.current] for group in learned.strangers
            ],
        }


def item(session: Session, row: int, longest: int = _EXCERPT) -> dict[str, Any]:
    """One item with its decision, or with the probability of each class."""
    if not 0 <= row < len(session.items):
        raise InputError(f"there is no item {row}; they have the numbers 0 to {len(session.items) - 1}")
    decision = session.decisions.current.get(row)
    shown: dict[str, Any] = {"row": row, "name": session.items.names[row], "decision": decision and vars(decision)}
    if session.items.kind == "images":
        shown["key"] = session.keys[row]
    else:
        text: str = session.items.contents[row]
        shown["text"] = text if len(text) <= longest else f"{text[:longest]}…"
    guess = sorted(session.learned.guess(row).items(), key=lambda pair: -pair[1])
    shown["guess"] = [[name, round(p, 4)] for name, p in guess]
    return shown


def _queued(session: Session, row: int) -> dict[str, Any]:
    """An item to be labelled; that of a spot check hides the model's answer, so that it cannot sway the person."""
    shown = item(session, row, _LONGEST_TEXT)
    return {**shown, "check": True, "guess": []} if row == session.spot_check else shown


def whole_item(session: Session, row: int) -> dict[str, Any]:
    """One item with its whole text, to be labelled."""
    with session.reading:
        return item(session, row, _LONGEST_TEXT)


def answers(session: Session, which: str, label: str | None, offset: int) -> dict[str, Any]:
    """A part of the list of items.

    Parameters
    ----------
    session : Session
    which : "unsure", "sure" or "decided"
        Open items, the least or the most certain first; or items with a decision, the last one first.
    label : str or None
        Only items of this class (or "none of these"), predicted or decided.
    offset : int
        How many to leave out.
    """
    with session.reading:
        learned, decisions = session.learned, session.decisions
        if which == "decided":
            rows = [row for row, said in decisions.current.items() if label in (None, said.answer)]
            rows.sort(key=lambda row: -decisions.changed_at.get(row, 0))
        elif which in ("sure", "unsure"):
            rows = _by_certainty(session, label)[:: -1 if which == "sure" else 1]
        else:
            raise InputError(f"unknown list {which!r}; choose from unsure, sure, decided")
        part = rows[max(offset, 0) :][:_PAGE]
        return {"total": len(rows), "items": [item(session, row) for row in part], "learned": learned.version}


def _by_certainty(session: Session, label: str | None) -> list[int]:
    """Open rows, the least certain first."""
    learned, decided = session.learned, session.decisions.current
    if learned.model is None:
        return [row for row in learned.rows.tolist() if row not in decided] if label is None else []
    best = learned.probabilities.argmax(1)
    order = np.argsort(learned.probabilities.max(1), kind="stable")
    names = learned.classes
    return [
        row
        for row, c in zip(learned.rows[order].tolist(), best[order].tolist(), strict=True)
        if row not in decided and label in (None, names[c])
    ]


def _predicted(session: Session) -> dict[str, int]:
    """How many open items each class is the answer for."""
    learned = session.learned
    if learned.model is None or not len(learned.rows):
        return {}
    n = np.bincount(learned.probabilities.argmax(1), minlength=len(learned.classes))
    return dict(zip(learned.classes, n.tolist(), strict=True))


def _confidence(session: Session) -> list[int]:
    """How many open items are answered with a probability of 0 to 10 %, 10 to 20 % and so on."""
    learned = session.learned
    if learned.model is None or not len(learned.rows):
        return []
    counts: list[int] = np.histogram(learned.probabilities.max(1), _BINS, (0.0, 1.0))[0].tolist()
    return counts


def _last(session: Session) -> dict[str, Any] | None:
    """What would be undone."""
    last = session.decisions.last
    if last is None:
        return None
    rows = session.decisions.rows_of(last)
    decision = last.decision or Decision("skip")
    return {"row": rows[0] if rows else None, "n": len(last.items), **vars(decision)}
