"""Predict with a trained run: `polyshot.load("runs/x").adapt(x, y).predict(x_new)`, and the same for files."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.data.npz import read_arrays
from polyshot.data.packed import Packed, read_packed
from polyshot.data.sets.folder import class_files, image_files
from polyshot.errors import DataError, InputError
from polyshot.methods import FewShotMethod, Predictor
from polyshot.runs.config import TrainingConfig
from polyshot.runs.distributed import find_device
from polyshot.runs.folder import RunFolder, package_versions
from polyshot.runs.inputs import Examples, Intake
from polyshot.system.files import write_atomically
from polyshot.system.text import csv_cell
from polyshot.task import LabelledSet

_AT_ONCE = 512  # queries read and predicted at a time

SCORE = "minus the largest class score; the higher it is, the less the query looks like any class of the support set"


@dataclass(frozen=True)
class Answer:
    """The predictions for Q queries.

    Attributes
    ----------
    log_probs : Tensor [Q, C]
        Log-probability of each class.
    scores : Tensor [Q, C]
        The method's score of each class; for a GP method the posterior mean logit.
    class_names : tuple
        The label of each column.
    """

    log_probs: Float[Tensor, "q c"]
    scores: Float[Tensor, "q c"]
    class_names: tuple[Any, ...]

    @property
    def probabilities(self) -> Float[Tensor, "q c"]:
        """[Q, C], the probability of each class."""
        return self.log_probs.exp()

    @property
    def labels(self) -> list[Any]:
        """The most probable class of each query, Q labels."""
        return [self.class_names[c] for c in self.log_probs.argmax(-1).tolist()]

    @property
    def confidence(self) -> Float[Tensor, "q"]:
        """[Q], the probability of the most probable class."""
        return self.probabilities.amax(-1)

    @property
    def out_of_episode(self) -> Float[Tensor, "q"]:
        """[Q], minus the largest score: high for a query outside all classes."""
        return -self.scores.amax(-1)


@dataclass(frozen=True)
class Adapted:
    """A trained run that has seen a support set; `TrainedRun.adapt` makes one.

    Attributes
    ----------
    class_names : tuple
        The labels of the support set, sorted.
    predictor : Predictor
        The method, conditioned on the support set.
    intake : Intake
        How examples are brought into the network's form.
    device : torch.device
        Where predictions are computed.
    """

    class_names: tuple[Any, ...]
    predictor: Predictor
    intake: Intake
    device: torch.device

    def predict(self, x: Examples) -> Answer:
        """Predict queries.

        Parameters
        ----------
        x : list of image files, array or tensor
            Any form that `TrainedRun.adapt` takes.

        Returns
        -------
        Answer
        """
        if not len(x):
            raise InputError("there is no query; at least one is needed")
        parts = [
            self.predictor(self.intake(x[first : first + _AT_ONCE]).to(self.device))
            for first in range(0, len(x), _AT_ONCE)
        ]
        log_probs, scores = torch.cat([p.log_probs for p in parts]), torch.cat([p.scores for p in parts])
        return Answer(log_probs.cpu(), scores.cpu(), self.class_names)


@dataclass(frozen=True)
class TrainedRun:
    """A trained method; `polyshot.load` reads one from its run folder.

    Attributes
    ----------
    path : Path
        The run folder.
    method : FewShotMethod
        The method with its best weights.
    config : TrainingConfig
        What it was trained on, and how.
    best : dict
        The log entry of the epoch that the weights are from.
    device : torch.device
        Where predictions are computed.
    """

    path: Path
    method: FewShotMethod
    config: TrainingConfig
    best: dict[str, Any]
    device: torch.device

    def adapt(self, x: Examples, y: Any, seed: int = 0) -> Adapted:
        """Condition the method on a support set of two classes or more.

        Parameters
        ----------
        x : list of image files, array or tensor
            uint8 images [n, c, h, w] or [n, h, w], floats in the network's own form, or embeddings [n, d].
        y : sequence
            n labels that can be sorted, all names or all numbers.
        seed : int
            Seed of methods that draw samples.

        Returns
        -------
        Adapted
        """
        labels = y.tolist() if isinstance(y, (Tensor, np.ndarray)) else list(y)
        if len(labels) != len(x):
            raise InputError(f"{len(x)} support examples and {len(labels)} labels; give one label per example")
        try:
            class_names = tuple(sorted(set(labels)))
        except TypeError as error:
            raise InputError(f"the labels must be all names or all numbers ({error})") from error
        if len(class_names) < 2:
            raise InputError(f"a support set needs two classes or more; this one has {list(class_names)}")
        intake = Intake.fitting(self.method.space, x)
        targets = torch.tensor([class_names.index(label) for label in labels], device=self.device)
        support = LabelledSet(intake(x).to(self.device), targets)
        return Adapted(class_names, self.method.adapt(support, len(class_names), seed), intake, self.device)


def load(path: Path | str, device: str | None = None) -> TrainedRun:
    """Load a trained run.

    Parameters
    ----------
    path : Path or str
        A run folder of `polyshot train`.
    device : str, optional
        Where to compute, such as "cpu" or "cuda"; the GPU by default, if there is one.

    Returns
    -------
    TrainedRun

    Examples
    --------
    >>> run = polyshot.load("runs/ove")  # doctest: +SKIP
    >>> run.adapt(x, y).predict(x_new).labels  # doctest: +SKIP
    """
    folder, place = RunFolder(path), find_device(device)
    method, best = folder.load_method()
    return TrainedRun(folder.path, method.to(place), folder.config, best, place)


def read_support(path: Path) -> tuple[Examples, list[str]]:
    """Read labelled examples: a folder with one sub-folder per class, or a packed npz (label -1 is left out)."""
    if path.is_dir():
        files = class_files(path)
        return [f for members in files.values() for f in members], [name for name in files for _ in files[name]]
    packed = read_packed(path)
    rows = np.flatnonzero(packed.labels >= 0)
    return packed.examples(rows), [packed.class_names[label] for label in packed.labels[rows]]


def read_queries(path: Path) -> tuple[Examples, list[str]]:
    """Read queries and their names: a folder of images, also in sub-folders, or an npz, whose labels are not used."""
    if path.is_dir():
        files = image_files(path)
        if not files:
            raise DataError(f"{path}: holds no images to predict")
        return files, [file.relative_to(path).as_posix() for file in files]
    arrays = read_arrays(path)
    examples = next((arrays[field] for field in ("X", "images") if field in arrays), None)
    if examples is not None and not examples.size:
        raise DataError(f"{path}: holds no query")
    if examples is not None:
        n = len(np.atleast_1d(examples))
        arrays |= {"labels": np.zeros(n, np.int64), "class_names": np.array(["unknown"])}
    packed = Packed(path, arrays)
    return packed.examples(np.arange(len(packed))), [f"row {row}" for row in range(len(packed))]


def write_predictions(
    out: Path, run: TrainedRun, adapted: Adapted, names: Sequence[str], answer: Answer, **about: Any
) -> tuple[Path, Path]:
    """Write predictions.csv and predictions.json into the folder `out`; `about` goes into the JSON."""
    rows = [
        [name, label, float(confidence), float(score), *probabilities]
        for name, label, confidence, score, probabilities in zip(
            names, answer.labels, answer.confidence, answer.out_of_episode, answer.probabilities.tolist(), strict=True
        )
    ]
    head = ["query", "predicted", "confidence", "out_of_episode_score"]
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*head, *(csv_cell(f"p({name})") for name in answer.class_names)])
    writer.writerows([csv_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    content = {
        "run": str(run.path),
        "configuration": run.config.as_dict(),
        "packages": package_versions(),
        "classes": answer.class_names,
        "out_of_episode_score": SCORE,
        "images": adapted.intake.note,
        **about,
        "predictions": [
            dict(zip(head, row, strict=False))
            | {"probabilities": dict(zip(answer.class_names, row[len(head) :], strict=True))}
            for row in rows
        ],
    }
    files = out / "predictions.csv", out / "predictions.json"
    write_atomically(files[0], table.getvalue().encode())
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(files[1], text.encode(errors="backslashreplace"))  # as JSON escapes what is no UTF-8
    return files
