"""Classify many queries: in chunks, with progress, and again from where an interrupted call stopped."""

import contextlib
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from polyshot.app.advice import Suspect, next_to_label, suspects
from polyshot.app.answers import Answer, Levels
from polyshot.app.item_classifier import ItemClassifier
from polyshot.app.items import Items, unusable
from polyshot.encoders.items import image_bytes, image_items
from polyshot.errors import DataError
from polyshot.system.progress import Progress
from polyshot.system.sealed import read_sealed, write_sealed

CHUNK = 250  # queries answered at once, and kept
_MOST_BYTES = 2**28  # of their answers


@dataclass(frozen=True)
class Classification:
    """The answers about all queries. They are kept on disk and read when iterated over, one chunk at a time.

    Attributes
    ----------
    classifier : ItemClassifier
        The model.
    queries : Items
        What was asked.
    levels : Levels
        How sure the answers had to be.
    failures : dict
        Row of a query that was left out to the reason.
    actions, predicted : Counter
        How many queries each action, and each predicted class, was given to.
    next_to_label : tuple of int
        Rows of the queries whose labels would teach the model most, the best first.
    suspects : tuple of Suspect
        Examples whose labels do not fit the others.
    """

    classifier: ItemClassifier
    queries: Items
    levels: Levels
    failures: dict[int, str]
    actions: Counter[str]
    predicted: Counter[str]
    next_to_label: tuple[int, ...]
    suspects: tuple[Suspect, ...]
    parts: tuple[Path, ...]  # where the answers are

    def __len__(self) -> int:
        return self.actions.total()

    def __iter__(self) -> Iterator[Answer]:
        for _, answer in self.by_row():
            yield answer

    def by_row(self) -> Iterator[tuple[int, Answer]]:
        """Each answer with its row in `queries`."""
        for part in self.parts:
            content, _ = read_sealed(part, _MOST_BYTES)
            yield from zip(content["rows"], map(Answer.from_dict, content["answers"]), strict=True)

    @property
    def notes(self) -> list[str]:
        """What the reader should know: limits of the levels with so few examples."""
        return self.levels.notes(len(self.classifier.examples))

    def forget_parts(self) -> None:
        """Delete the chunks on disk, once the answers are written elsewhere."""
        shutil.rmtree(self.parts[0].parent, ignore_errors=True)


def classify(
    classifier: ItemClassifier,
    queries: Items,
    levels: Levels | None = None,
    *,
    parts: Path | None = None,
    n_next: int = 10,
    skip_unreadable: bool = False,
    quiet: bool = True,
) -> Classification:
    """Answer all queries, and say which of them to label next and which labels to check.

    Parameters
    ----------
    classifier : ItemClassifier
        `ItemClassifier.fit` or `ItemClassifier.load` makes one.
    queries : Items
        Any number; the memory needed beyond them does not grow with it.
    levels : Levels, optional
        How sure the answers have to be.
    parts : Path, optional
        Folder in which finished chunks are kept. A call with the same model, queries, levels and folder continues
        where an interrupted one stopped. By default a temporary folder.
    n_next : int
        How many queries to name as the next to label.
    skip_unreadable : bool
        Leave out queries that cannot be used instead of raising one DataError at the end that names all of them.
    quiet : bool
        Show no progress.

    Returns
    -------
    Classification

    Examples
    --------
    >>> from polyshot.app import ItemClassifier, Items, classify
    >>> examples = Items.of("vectors", [[0.0], [0.1], [0.9], [1.0]])
    >>> model = ItemClassifier.fit(examples, ["low", "low", "high", "high"])
    >>> result = classify(model, Items.of("vectors", [[0.05], [0.8]], ["a", "b"]))
    >>> [(answer.name, answer.predicted) for answer in result]
    [('a', 'low'), ('b', 'high')]
    >>> result.forget_parts()
    """
    levels = levels or Levels()
    folder = parts or Path(mkdtemp(prefix="polyshot-"))
    model = model_digest(classifier)
    failures: dict[int, str] = {}
    actions: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    files = []
    with Progress("classifying", len(queries), quiet=quiet) as progress:
        for rows in chunks(range(len(queries))):
            content = answer_chunk(classifier, queries, rows, levels, folder, model)
            failures |= dict(content["failures"])
            actions.update(answer["action"] for answer in content["answers"])
            predicted.update(answer["predicted"] for answer in content["answers"])
            files.append(part_file(folder, rows))
            progress.update(rows.stop)
    if failures and not skip_unreadable:
        raise unusable(queries, failures, "queries")
    if not actions:
        raise DataError("none of the queries can be used, so there is nothing to answer")
    advice = next_to_label(classifier, queries, n_next, failures), suspects(classifier)
    return Classification(classifier, queries, levels, failures, actions, predicted, *advice, tuple(files))


def chunks(rows: range) -> Iterator[range]:
    """Rows that are answered at once; `rows` starts with a chunk."""
    return (rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK))


def part_file(folder: Path, rows: range) -> Path:
    """The file of a chunk's answers."""
    return folder / f"{rows.start // CHUNK:06}.json"


def answer_chunk(
    classifier: ItemClassifier, queries: Items, rows: range, levels: Levels, folder: Path, model: str
) -> dict[str, Any]:
    """The content of a chunk's file, which is made unless it is there from the same question.

    `model` is the digest of the classifier.
    """
    chunk, file, first = queries.take(rows), part_file(folder, rows), rows.start
    fingerprint = f"{model} {_digest(chunk)} {levels}"
    with contextlib.suppress(DataError):  # a chunk that is missing or damaged is computed again
        content, sealed = read_sealed(file, _MOST_BYTES)
        if sealed and content.get("fingerprint") == fingerprint:
            return content
    answers, failures = classifier.answer(chunk, levels)
    content = {
        "fingerprint": fingerprint,
        "rows": [first + row for row in range(len(chunk)) if row not in failures],
        "answers": [answer.as_dict() for answer in answers],
        "failures": [(first + row, reason) for row, reason in failures.items()],
    }
    write_sealed(file, content)
    return content


def _digest(items: Items) -> str:
    """The identity of the items."""
    contents = [items.contents.tobytes().hex()] if items.kind == "vectors" else map(described, items.contents)
    return _hash([list(items.names), list(contents)])


def described(content: Any) -> str:
    """The identity of a text or an image; of a file by path, size and time."""
    if isinstance(content, str):
        return content
    if isinstance(content, Path):
        status = content.stat() if content.is_file() else None
        return f"{content} {status and (status.st_size, status.st_mtime_ns)}"
    return hashlib.sha256(image_bytes(image_items([content])[0])).hexdigest()


def model_digest(classifier: ItemClassifier) -> str:
    """The identity of the model."""
    fitted = classifier.model.fitted_
    return _hash([str(classifier.encoder), classifier.labels, fitted.weights.numpy().tobytes().hex()])


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
