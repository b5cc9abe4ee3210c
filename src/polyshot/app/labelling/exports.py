"""What a labelling session leaves behind: a table, images in folders, and a model."""

import csv
import io
import shutil
import threading
from pathlib import Path
from typing import Any

from polyshot.app.item_classifier import ItemClassifier, record_path
from polyshot.app.labelling.session import Session
from polyshot.app.labelling.store import NONE
from polyshot.app.outputs import folder_names, unused
from polyshot.errors import DataError, InputError
from polyshot.system.files import replacing, write_atomically
from polyshot.system.text import csv_cell

_WORDS = {"class": "labelled", "none": NONE, "skip": "skipped"}


class Exports:
    """Writes into one folder, under names that are free; nothing is overwritten and no original is moved.

    Parameters
    ----------
    session : Session
    folder : Path
    sure : float
        Smallest probability with which an unlabelled image is sorted into the folder of its answer.
    """

    def __init__(self, session: Session, folder: Path, sure: float = 0.9) -> None:
        self._session, self._folder, self._sure = session, folder, sure
        self._one_at_a_time = threading.Lock()
        self._kinds = {"table": self._table, "folders": self._folders, "model": self._model}

    def write(self, what: str) -> dict[str, Any]:
        """Write a "table", "folders" or a "model" of everything decided so far; returns where, and a summary."""
        if what not in self._kinds:
            raise InputError(f"unknown export {what!r}; choose from {', '.join(self._kinds)}")
        with self._one_at_a_time:
            self._session.wait()
            path, summary = self._kinds[what]()
        return {"path": str(path.absolute()), "summary": summary}

    def _table(self) -> tuple[Path, str]:
        """One row per item. Only what a person labelled has a label, so that the other rows are queries to classify."""
        session, path = self._session, self._free("labels.csv")
        content = "text" if session.items.kind == "text" else "image"
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["item", content, "label", "decision", "predicted", "probability"])
        with session.reading:
            for row, name in enumerate(session.items.names):
                shown = session.items.contents[row]
                shown = shown if isinstance(shown, str) else str(shown.absolute())
                decision = session.decisions.current.get(row)
                label, word = (decision.label or "", _WORDS[decision.kind]) if decision else ("", "")
                predicted, p = self._answer(row)
                cells = [csv_cell(text) for text in (name, shown, label, word, predicted)]
                writer.writerow([*cells, f"{p:.4f}" if predicted else ""])
        write_atomically(path, buffer.getvalue().encode("utf-8"))
        n = len(session.decisions.labels)
        return path, f"{n:,} labels and {len(session.items):,} rows"

    def _folders(self) -> tuple[Path, str]:
        """Copies of the images: one folder per class, "none of these", and "to check" for answers that are not sure."""
        session = self._session
        if session.items.kind != "images":
            raise InputError("only images can be sorted into folders")
        folder = self._free("sorted")
        with session.reading:
            places = [self._place(row) for row in range(len(session.items))]
        titles = {None: "none of these", "": "to check"}
        kinds = sorted(set(places), key=lambda place: (place in titles, str(place)))
        names = dict(zip(kinds, folder_names([titles.get(kind) or str(kind) for kind in kinds]), strict=True))
        taken: dict[Path, int] = {}
        for row, place in enumerate(places):
            source: Path = session.items.contents[row]
            target = unused(folder / names[place] / source.name, taken)
            try:
                with source.open("rb") as original, replacing(target) as copy:
                    shutil.copyfileobj(original, copy)
            except OSError as error:
                raise DataError(f"{source}: cannot be copied into {folder} ({error.strerror})") from error
        checked = places.count("")
        return folder, f"{len(places) - checked:,} images in folders of their class, {checked:,} to check"

    def _model(self) -> tuple[Path, str]:
        """The model, for `polyshot classify --model` and for Python."""
        session, path = self._session, self._free("model.polyshot")
        labels = session.decisions.answers
        if len(set(labels.values())) < 2:
            raise InputError('a model needs items of two classes, or of one class and "none of these"')
        rows = list(labels)
        classifier = ItemClassifier.fit(session.items.take(rows), [labels[row] for row in rows], session.encoder)
        classifier.save(path)
        return path, f"{', '.join(classifier.classes)}, from {len(rows):,} examples"

    def _answer(self, row: int) -> tuple[str, float]:
        """The most probable class of an open item; an empty name if there is none."""
        guess = self._session.learned.guess(row)
        return max(guess.items(), key=lambda pair: pair[1]) if guess else ("", 0.0)

    def _place(self, row: int) -> str | None:
        """The class whose folder an image belongs to; None for "none of these", and "" for "to check"."""
        decision = self._session.decisions.current.get(row)
        if decision is not None and decision.kind != "skip":
            return decision.label
        predicted, p = self._answer(row)
        if p < self._sure:
            return ""
        return None if predicted == NONE else predicted

    def _free(self, name: str) -> Path:
        """A path in the folder that nothing has yet: labels.csv, labels-2.csv and so on."""
        path, number = self._folder / name, 2
        while path.exists() or record_path(path).exists():
            path, number = self._folder / f"{Path(name).stem}-{number}{Path(name).suffix}", number + 1
        return path
