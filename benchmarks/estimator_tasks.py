"""The episodes of the estimator's benchmark: the same for every method, from a seed made of the cell's name."""

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

SHOTS = (1, 2, 5, 10, 20)
EMBEDDINGS = ("clinc150_minilm", "cub_efficientnet")


class Episode(NamedTuple):
    """Support X, y; queries with labels; queries of unseen classes; queries that are out of scope by nature."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    queries: NDArray[np.float64]
    labels: NDArray[np.int64]
    unseen: NDArray[np.float64]
    out_of_scope: NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A data set, the half of its classes, and the size of the task."""

    data: str
    half: str
    n_way: int
    n_shot: int

    @property
    def name(self) -> str:
        return f"{self.data}/{self.half}/{self.n_way}-way/{self.n_shot}-shot"


@dataclass(frozen=True)
class Data:
    """All examples, those that belong to no class, and whether features want one unit (by the support's spread)."""

    X: NDArray[np.float64]
    labels: NDArray[np.int64]
    outside: NDArray[np.float64]
    scale: bool


def load_all() -> dict[str, Data]:
    """The data sets that are there: the embeddings of $POLYSHOT_DATA, and scikit-learn's own."""
    sets = {}
    for name in EMBEDDINGS:
        path = Path(os.environ.get("POLYSHOT_DATA", ".")) / f"{name}.npz"
        if path.is_file():
            with np.load(path) as file:
                X, labels = file["X"].astype(np.float64), file["labels"].astype(np.int64)
            sets[name] = Data(X[labels >= 0], labels[labels >= 0], X[labels < 0], scale=False)
    for name, read in (("digits", load_digits), ("wine", load_wine), ("breast_cancer", load_breast_cancer)):
        X, labels = read(return_X_y=True)
        sets[name] = Data(X.astype(np.float64), labels.astype(np.int64), X[:0], scale=name != "digits")
    return sets


def cells(data: dict[str, Data]) -> list[Cell]:
    """Every cell that the data have enough classes for; halves are the even and the odd classes."""
    result = []
    for name in data:
        if name in EMBEDDINGS:
            result += [Cell(name, half, c, k) for half in ("design", "held-out") for c in (5, 20, 50) for k in SHOTS]
        else:
            n_way = {"digits": 5, "wine": 3, "breast_cancer": 2}[name]
            result += [Cell(name, "all", n_way, k) for k in SHOTS]
    return result


def episodes(cell: Cell, data: Data, n_episodes: int, first: int = 0) -> Iterator[Episode]:
    """Episodes number `first` to `n_episodes` - 1 of a cell; number k is the same in every run."""
    classes = np.unique(data.labels)
    if cell.half != "all":
        classes = classes[classes % 2 == (cell.half == "held-out")]
    rows_of = {c: np.flatnonzero(data.labels == c) for c in classes}
    n_query = 15 if cell.n_way <= 5 else 5
    for k in range(first, n_episodes):
        generator = np.random.default_rng([zlib.crc32(cell.name.encode()), k])
        order = generator.permutation(classes)
        seen, unseen = order[: cell.n_way], order[cell.n_way : 2 * cell.n_way]
        picks = [generator.permutation(rows_of[c])[: cell.n_shot + n_query] for c in seen]
        support = np.concatenate([p[: cell.n_shot] for p in picks])
        queries = np.concatenate([p[cell.n_shot :] for p in picks])
        places = {c: i for i, c in enumerate(seen)}
        others = np.concatenate([rows_of[c] for c in unseen]) if len(unseen) else np.empty(0, np.int64)
        others = generator.permutation(others)[: len(queries)]
        outside = data.outside[generator.permutation(len(data.outside))[: len(queries)]]
        transform = StandardScaler().fit(data.X[support]).transform if data.scale else np.asarray
        yield Episode(
            transform(data.X[support]),
            np.array([places[c] for c in data.labels[support]]),
            transform(data.X[queries]),
            np.array([places[c] for c in data.labels[queries]]),
            transform(data.X[others]) if len(others) else data.X[:0],
            outside,
        )
