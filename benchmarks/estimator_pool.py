"""What unlabelled examples are worth: log-loss with a pool, relative to none, beside scikit-learn's rivals.

    python -m benchmarks.estimator_pool [--episodes 12] [--minutes M]    # held-out classes
    python -m benchmarks.estimator_pool --half design --tune             # the rivals' settings

Each cell has 15 or 40 unlabelled examples per class, alone or with as many of other classes ("strangers"). The
embeddings are those of $POLYSHOT_DATA. CUB has 30 images per class there, so 40 means what 5 queries per class leave:
24 with one shot, 20 with five. Queries are not in the pool: up to 40 per class. "Transductive" asks about the pool's
own rows, without strangers. Cells with 20 ways have a third of the episodes. Episode k of a cell has the seed (crc32 of
the cell's name, k).

Results are written after every episode, and the next run continues. The table of the held-out classes is written into
docs/estimator-unlabelled.md. The rivals get unit vectors, and no probability of theirs counts as less than 0.001 / C.
"""

import argparse
import json
import time
import warnings
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, Data, load_all
from polyshot.estimator import OneVsEachClassifier
from polyshot.system.files import write_atomically

RESULTS = Path("benchmarks/results/estimator_pool.json")
BINS = 15
TUNED_ON = 2  # episodes per cell
Array = NDArray[np.float64]


def self_training(C: float, **options: Any) -> Any:
    return SelfTrainingClassifier(LogisticRegression(C=C, max_iter=500), **options)


GRAPHS: list[dict[str, Any]] = [{"kernel": "knn", "n_neighbors": k} for k in (5, 10, 20)]
GRAPHS += [{"kernel": "rbf", "gamma": gamma} for gamma in (5.0, 10.0, 20.0, 40.0)]
TRUSTS: list[dict[str, Any]] = [{"threshold": t} for t in (0.5, 0.75, 0.9)]
TRUSTS += [{"criterion": "k_best", "k_best": k, "max_iter": None} for k in (10, 50)]
# The candidates of each rival: --tune prints the best for each number of shots.
CANDIDATES: dict[str, list[Callable[[], Any]]] = {
    "self-training": [lambda c=c, t=t: self_training(c, **t) for c in (10.0, 100.0, 1000.0, 10000.0) for t in TRUSTS],
    "spreading": [
        lambda g=g, a=a: LabelSpreading(**g, alpha=a, max_iter=200) for g in GRAPHS for a in (0.2, 0.5, 0.8, 0.95)
    ],
    "propagation": [lambda g=g: LabelPropagation(**g, max_iter=1000) for g in GRAPHS],
}
# What --tune chose on design classes: the place in CANDIDATES for 1 and for 5 shots.
CHOSEN = {"self-training": {1: 15, 5: 19}, "spreading": {1: 22, 5: 22}, "propagation": {1: 5, 5: 5}}


class Cell(NamedTuple):
    """A data set, the size of the task, and the pool."""

    data: str
    half: str
    n_way: int
    n_shot: int
    n_pool: int
    strangers: bool

    @property
    def name(self) -> str:
        task = f"{self.data}/{self.half}/{self.n_way}-way/{self.n_shot}-shot"
        return f"{task}/{self.n_pool} per class{', strangers' if self.strangers else ''}"


class Task(NamedTuple):
    """Labelled rows, the pool with the labels that nobody sees (-1: a stranger), and queries."""

    X: Array
    y: NDArray[np.int64]
    pool: Array
    hidden: NDArray[np.int64]
    queries: Array
    labels: NDArray[np.int64]


def cells(half: str) -> list[Cell]:
    sizes = product(EMBEDDINGS, (5, 20), (1, 5), (40, 15), (False, True))
    return [Cell(data, half, *size) for data, *size in sizes]


def draw(cell: Cell, data: Data, k: int) -> Task:
    """Episode k of a cell."""
    rng = np.random.default_rng([zlib.crc32(cell.name.encode()), k])
    classes = np.unique(data.labels)
    order = rng.permutation(classes[classes % 2 == (cell.half == "held-out")])[: 2 * cell.n_way]
    rows = [rng.permutation(np.flatnonzero(data.labels == c)) for c in order]
    n_pool = min(cell.n_pool, len(rows[0]) - cell.n_shot - 5)
    ends = np.cumsum([cell.n_shot, n_pool, 40])
    support, pool, queries = (
        [r[first:last] for r in rows[: cell.n_way]] for first, last in zip((0, *ends), ends, strict=False)
    )
    others = [r[:n_pool] for r in rows[cell.n_way :] if cell.strangers]
    labels = [np.repeat(np.arange(cell.n_way), [len(r) for r in part]) for part in (support, pool, queries)]
    hidden = np.concatenate([labels[1], np.full(sum(len(r) for r in others), -1)])
    X, unlabelled, asked = (data.X[np.concatenate(part)] for part in (support, pool + others, queries))
    return Task(X, labels[0], unlabelled, hidden, asked, labels[2])


def rivals_probabilities(rival: Any, task: Task) -> Array:
    """Class probabilities of the queries; with zeros where no label arrives, made finite and positive."""
    rows, labels = np.concatenate([task.X, task.pool]), np.r_[task.y, np.full(len(task.pool), -1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p: Array = np.nan_to_num(rival.fit(normalize(rows), labels).predict_proba(normalize(task.queries)))
    p = np.clip(p, 1e-3 / p.shape[1], None)
    return p / p.sum(1, keepdims=True)


def loss(p: Array, labels: NDArray[np.int64]) -> float:
    return float(-np.log(p[np.arange(len(labels)), labels]).mean())


def gaps(p: Array, labels: NDArray[np.int64]) -> list[float]:
    """Confidence minus accuracy, summed in each bin of confidence, per query."""
    top = p.max(1)
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    sums: list[float] = (np.bincount(bins, top - (p.argmax(1) == labels), BINS) / len(p)).tolist()
    return sums


def our_losses(task: Task) -> dict[str, Any]:
    """Losses with and without the pool on one episode, and what the calibration errors are made of."""
    alone = OneVsEachClassifier().fit(task.X, task.y)
    unlabelled = np.full(len(task.pool), -1)
    ours = OneVsEachClassifier(unlabeled=-1).fit(np.concatenate([task.X, task.pool]), np.r_[task.y, unlabelled])
    found: dict[str, Any] = {}
    members = task.hidden >= 0
    for name, model in (("no pool", alone), ("pool", ours)):
        p = model.predict_proba(task.queries)
        found[name], found[f"{name}, gaps"] = loss(p, task.labels), gaps(p, task.labels)
        found[f"{name}, transductive"] = loss(model.predict_proba(task.pool[members]), task.hidden[members])
    return found


def rivals_losses(n_shot: int, task: Task) -> dict[str, Any]:
    """Losses of the rivals on one episode."""
    chosen = {name: CANDIDATES[name][places[n_shot]]() for name, places in CHOSEN.items()}
    return {name: loss(rivals_probabilities(rival, task), task.labels) for name, rival in chosen.items()}


def tune(sets: dict[str, Data], half: str) -> None:
    """Print for each rival and number of shots the candidate with the least loss, relative to no pool, on 5 ways."""
    for name, candidates in CANDIDATES.items():
        for n_shot in (1, 5):
            ratios = []
            for cell in cells(half):
                if cell.n_shot == n_shot and cell.n_way == 5:
                    drawn = [draw(cell, sets[cell.data], k) for k in range(TUNED_ON)]
                    alone = [
                        loss(OneVsEachClassifier().fit(t.X, t.y).predict_proba(t.queries), t.labels) for t in drawn
                    ]
                    each = [[loss(rivals_probabilities(make(), t), t.labels) for t in drawn] for make in candidates]
                    ratios.append(np.mean(each, 1) / np.mean(alone))
            means = np.mean(ratios, 0)
            place = int(means.argmin())
            print(f"{name}, {n_shot} shots: {place} {candidates[place]()}, {means[place]:.3f}", flush=True)


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """One row per cell."""
    head = ["no pool", "pool", *CANDIDATES, "pool, transductive", "ECE", "ECE, no pool"]
    lines = ["| cell | episodes | " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) + 1)]
    for name, rows in results.items():
        mean = {key: np.mean([row[key] for row in rows], 0) for key in rows[0]}
        ratios = [mean[key] / mean["no pool"] for key in ("pool", *CANDIDATES)]
        ratios.append(mean["pool, transductive"] / mean["no pool, transductive"])
        numbers = [f"{mean['no pool']:.4f}"] + [f"{ratio:.2f}" for ratio in ratios]
        numbers += [f"{np.abs(mean[f'{key}, gaps']).sum():.3f}" for key in ("pool", "no pool")]
        lines.append(f"| {name.replace('/held-out', '')} | {len(rows)} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


def summary(results: dict[str, list[dict[str, Any]]]) -> str:
    """Means over cells for each number of shots and kind of pool, with the largest ratio."""
    lines = ["| cells | mean, 5-way | mean, 20-way | mean | largest | largest ECE |", "|---|" + "---:|" * 5]
    for shots, strangers in product((1, 5), (False, True)):
        ratios, errors = {}, []
        for cell in cells("held-out"):
            if cell.n_shot == shots and cell.strangers == strangers and cell.name in results:
                rows = results[cell.name]
                ratios[cell.name] = np.mean([r["pool"] for r in rows]) / np.mean([r["no pool"] for r in rows])
                errors.append(np.abs(np.mean([r["pool, gaps"] for r in rows], 0)).sum())
        by_way = [np.mean([x for name, x in ratios.items() if f"/{n}-way" in name]) for n in (5, 20)]
        title = f"{shots}-shot, {'as many strangers' if strangers else 'clean pool'}"
        numbers = [f"{x:.2f}" for x in (*by_way, np.mean(list(ratios.values())), max(ratios.values()))]
        lines.append(f"| {title} | " + " | ".join([*numbers, f"{max(errors):.3f}"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", default="held-out", choices=["design", "held-out"])
    parser.add_argument("--episodes", type=int, default=12, help="for 5 ways; a third of it for 20 ways")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of processor time")
    parser.add_argument("--tune", action="store_true")
    arguments = parser.parse_args()
    sets = load_all()
    if arguments.tune:
        tune(sets, arguments.half)
        return
    path = RESULTS.with_stem(RESULTS.stem + ("_design" if arguments.half == "design" else ""))
    results = json.loads(path.read_bytes()) if path.is_file() else {}
    results = {cell.name: results.get(cell.name, []) for cell in cells(arguments.half)}
    for k in range(arguments.episodes):
        for cell in cells(arguments.half):
            rows, wanted = results[cell.name], arguments.episodes if cell.n_way == 5 else arguments.episodes // 3
            if k < wanted and k >= len(rows) and time.process_time() < 60 * arguments.minutes:
                task = draw(cell, sets[cell.data], k)
                rows.append(our_losses(task) | rivals_losses(cell.n_shot, task))
                write_atomically(path, json.dumps(results).encode())
    done = {name: rows for name, rows in results.items() if rows}
    print(table(done), summary(done), sep="\n\n")
    if arguments.half == "held-out":
        put_into_docs("pool", table(done))
        put_into_docs("pool, summary", summary(done))


if __name__ == "__main__":
    main()
