"""Predictions about files: examples and queries from folders, images and npz files, answers as CSV and JSON."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyshot.data.images import unreadable_images
from polyshot.data.npz import read_arrays
from polyshot.data.packed import Packed, read_packed
from polyshot.data.sets.folder import class_files, image_files
from polyshot.errors import DataError
from polyshot.runs.inputs import Examples
from polyshot.runs.trained import Adapted, Answer
from polyshot.system.files import write_atomically
from polyshot.system.text import csv_cell
from polyshot.system.versions import package_versions

SCORE = "minus the largest class score; the higher it is, the less the query looks like any class of the support set"
FAMILIARITY = "the share of the run's validation examples that are as far from its training examples as the query"


@dataclass(frozen=True)
class Named:
    """Examples, and what each is called: the label of a support example, the name of a query."""

    examples: Examples
    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def readable(self) -> tuple["Named", dict[str, str]]:
        """Those that can be read, and for each of the other files the reason; arrays can always be read."""
        if not isinstance(self.examples, list):
            return self, {}
        failures = unreadable_images(self.examples)
        rows = [row for row in range(len(self)) if row not in failures]
        rest = Named([self.examples[row] for row in rows], [self.names[row] for row in rows])
        return rest, {str(self.examples[row]): reason for row, reason in failures.items()}


def read_support(path: Path) -> Named:
    """Read labelled examples: a folder with one sub-folder per class, or a packed npz (label -1 is left out)."""
    if path.is_dir():
        files = class_files(path)
        return Named([f for members in files.values() for f in members], [name for name in files for _ in files[name]])
    packed = read_packed(path)
    rows = np.flatnonzero(packed.labels >= 0)
    return Named(packed.examples(rows), [packed.class_names[label] for label in packed.labels[rows]])


def read_queries(path: Path) -> Named:
    """Read queries: a folder of images, also in sub-folders, one image, or an npz, whose labels are not used."""
    if path.is_dir():
        files = image_files(path)
        if not files:
            raise DataError(f"{path}: holds no images to predict")
        return Named(files, [file.relative_to(path).as_posix() for file in files])
    if path.is_file() and path.suffix.lower() != ".npz":
        return Named([path], [path.name])
    arrays = read_arrays(path)
    examples = next((arrays[field] for field in ("X", "images") if field in arrays), None)
    if examples is not None and not examples.size:
        raise DataError(f"{path}: holds no query")
    if examples is not None:
        n = len(np.atleast_1d(examples))
        arrays |= {"labels": np.zeros(n, np.int64), "class_names": np.array(["unknown"])}
    packed = Packed(path, arrays)
    return Named(packed.examples(np.arange(len(packed))), [f"row {row}" for row in range(len(packed))])


def prediction_files(out: Path) -> tuple[Path, Path]:
    """The files that `write_predictions` writes."""
    return out / "predictions.csv", out / "predictions.json"


def write_predictions(out: Path, adapted: Adapted, names: Sequence[str], answer: Answer, **about: Any) -> None:
    """Write predictions.csv and predictions.json into the folder `out`; `about` goes into the JSON."""
    columns: dict[str, Sequence[Any]] = {
        "query": names,
        "predicted": answer.labels,
        "confidence": answer.confidence.tolist(),
        "out_of_episode_score": answer.out_of_episode.tolist(),
    }
    if answer.familiarity is not None:
        columns["familiarity"] = answer.familiarity.tolist()
    rows = list(zip(*columns.values(), strict=True))
    probabilities = answer.probabilities.tolist()
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*columns, *(csv_cell(f"p({name})") for name in answer.class_names)])
    for row, more in zip(rows, probabilities, strict=True):
        writer.writerow([csv_cell(cell) if isinstance(cell, str) else cell for cell in (*row, *more)])
    content = {
        "run": str(adapted.run.path),
        "configuration": adapted.run.config.as_dict(),
        "packages": package_versions(),
        "classes": answer.class_names,
        "out_of_episode_score": SCORE,
        "familiarity": FAMILIARITY,
        "images": adapted.intake.note,
        **about,
        "predictions": [
            dict(zip(columns, row, strict=True)) | {"probabilities": dict(zip(answer.class_names, more, strict=True))}
            for row, more in zip(rows, probabilities, strict=True)
        ],
    }
    files = prediction_files(out)
    write_atomically(files[0], table.getvalue().encode())
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(files[1], text.encode(errors="backslashreplace"))  # as JSON escapes what is no UTF-8
