"""The log of a run: one entry per epoch, and what follows from it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from polyshot.runs.config import TrainingConfig


def format_log(history: Sequence[Mapping[str, Any]]) -> bytes:
    """Return one line of JSON per entry; `check` is a checksum of the entry and, through theirs, of all before it."""
    check, lines = "", []
    for entry in history:
        check = _chain(check, entry)
        lines.append(json.dumps({**entry, "check": check}) + "\n")
    return "".join(lines).encode()


def parse_log(content: bytes, *, unchecked: bool = False) -> list[dict[str, Any]]:
    """Return the entries; raise ValueError for a damaged line. `unchecked` allows lines without a checksum."""
    check, entries = "", []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            entry = json.loads(line)
        except RecursionError:
            entry = None
        if not isinstance(entry, dict):
            raise ValueError(f"line {number} is not a JSON object")
        said = entry.pop("check", None)
        check = _chain(check, entry)
        if said != check and not (said is None and unchecked):
            raise ValueError(f"line {number} does not match its checksum")
        check_entry(entry)
        entries.append(entry)
    return entries


def validation_accuracies(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return every validation accuracy so far."""
    return [float(entry["validation_accuracy"]) for entry in history if "validation_accuracy" in entry]


def has_ended(history: Sequence[Mapping[str, Any]], config: TrainingConfig) -> bool:
    """Return whether all episodes are done, or patience has run out."""
    done = history[-1]["episodes"] if history else 0
    checked = validation_accuracies(history)
    waited = len(checked) - 1 - checked.index(max(checked)) if checked else 0
    return done >= config.total_episodes or (config.patience is not None and waited >= config.patience)


def check_entry(entry: Mapping[str, Any]) -> None:
    """Raise ValueError unless the entry has the numbers that a run is continued and judged by."""
    accuracy = entry.get("validation_accuracy", 0.0)
    if type(entry.get("episodes")) is not int or type(accuracy) not in (int, float) or not 0 <= accuracy <= 1:
        raise ValueError("an entry has no number of episodes, or a validation accuracy that is none")


def _chain(check: str, entry: Mapping[str, Any]) -> str:
    return hashlib.sha256((check + json.dumps(entry, sort_keys=True)).encode()).hexdigest()[:16]
