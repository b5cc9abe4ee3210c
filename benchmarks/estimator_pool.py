"""What unlabelled examples are worth: log-loss with a pool, relative to none, beside scikit-learn's rivals.

    python -m benchmarks.estimator_pool [--episodes 240] [--minutes M]   # held-out classes
    python -m benchmarks.estimator_pool --half design --tune             # the rivals' settings

Each cell has 15 or 40 unlabelled examples per class, alone or with as many of other classes ("strangers"). Hard pools
have strangers only, rows of half of the classes only, or one row per class; there the rivals do not take part.
The embeddings are those of $POLYSHOT_DATA. CUB has 30 images per class there, so 40 means what 5 queries per class
leave: 24 with one shot, 20 with five. Queries are not in the pool: up to 40 per class. "Transductive" asks about the
pool's own rows, without strangers. Cells with 20 ways have a quarter of the episodes. Rivals take part in the first 40
episodes (10 with 20 ways), and hard pools have no more. Episode k of a cell has the seed (crc32 of the cell's name, k).

Only sums over the episodes of a cell are kept. They are written after every episode, and the next run continues. The
tables of the held-out classes are written into docs/estimator-unlabelled.md. The rivals get unit vectors, and no
probability of theirs counts as less than 0.001 / C. ECE is over all queries of a cell. A calibrated classifier would
have an ECE above zero by chance; what it would have is computed from the variance in each bin.
"""

import argparse
import json
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

from benchmarks.estimator_pool_table import Sums, added, summary, table
from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, Data, load_all
from polyshot.estimator import OneVsEachClassifier
from polyshot.system.files import write_atomically

RESULTS = Path("benchmarks/results/estimator_pool.json")
BINS = 15
TUNED_ON = 2  # episodes per cell
FIRST = 40  # episodes with 5 ways in which rivals take part, and of hard pools; a quarter of it with 20 ways
# Kinds of pools: unlabelled rows per class, and what else there is about them.
GROUPS = {
    "clean pool": [(40, ""), (15, "")],
    "as many strangers": [(40, "strangers"), (15, "strangers")],
    "strangers only": [(40, "strangers only"), (15, "strangers only")],
    "rows of half of the classes": [(15, "half of the classes")],
    "one row per class": [(1, "")],
}
WITH_RIVALS = GROUPS["clean pool"] + GROUPS["as many strangers"]
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
    """One kind of task: the classes it is drawn from, its size, and what its pool is made of."""

    data: str
    half: str
    n_way: int
    n_shot: int
    n_pool: int
    kind: str

    @property
    def name(self) -> str:
        task = f"{self.data}/{self.half}/{self.n_way}-way/{self.n_shot}-shot"
        return f"{task}/{self.n_pool} per class{self.kind and f', {self.kind}'}"


class Task(NamedTuple):
    """Labelled rows, the pool with the labels that nobody sees (-1: a stranger), and queries."""

    X: Array
    y: NDArray[np.int64]
    pool: Array
    hidden: NDArray[np.int64]
    queries: Array
    labels: NDArray[np.int64]


def cells(half: str, pools: Sequence[tuple[int, str]] = WITH_RIVALS) -> list[Cell]:
    sizes = product(EMBEDDINGS, (5, 20), (1, 5), pools)
    return [Cell(data, half, n_way, n_shot, *pool) for data, n_way, n_shot, pool in sizes]


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
    others = [r[:n_pool] for r in rows[cell.n_way :] if "strangers" in cell.kind]
    absent = {"strangers only": cell.n_way, "half of the classes": cell.n_way // 2}.get(cell.kind, 0)
    pool = [part[:0] if c < absent else part for c, part in enumerate(pool)]
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


def gaps(p: Array, labels: NDArray[np.int64]) -> Array:
    """For each bin of confidence, over its queries: the sum of confidence minus accuracy, and its variance by chance.

    Both are per query of all bins.
    """
    top = p.max(1)
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    each = top - (p.argmax(1) == labels), top * (1 - top)
    return np.array([np.bincount(bins, x, BINS) for x in each]) / len(p)


def our_losses(task: Task) -> dict[str, Any]:
    """Losses with and without the pool on one episode, their products, and what the calibration errors are made of."""
    alone = OneVsEachClassifier().fit(task.X, task.y)
    unlabelled = np.full(len(task.pool), -1)
    ours = OneVsEachClassifier(unlabeled=-1).fit(np.concatenate([task.X, task.pool]), np.r_[task.y, unlabelled])
    found: dict[str, Any] = {"queries": float(len(task.labels))}
    members = task.hidden >= 0
    for name, model in (("no pool", alone), ("pool", ours)):
        p = model.predict_proba(task.queries)
        found[name], found[f"{name}, gaps"] = loss(p, task.labels), gaps(p, task.labels)
        if members.any():
            found[f"{name}, transductive"] = loss(model.predict_proba(task.pool[members]), task.hidden[members])
    pair = found["no pool"], found["pool"]
    return found | {"products": np.outer(pair, pair)}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", default="held-out", choices=["design", "held-out"])
    parser.add_argument("--episodes", type=int, default=240, help="for 5 ways; a quarter of it for 20 ways")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of processor time")
    parser.add_argument("--tune", action="store_true")
    arguments = parser.parse_args()
    sets = load_all()
    if arguments.tune:
        tune(sets, arguments.half)
        return
    path = RESULTS.with_stem(RESULTS.stem + ("_design" if arguments.half == "design" else ""))
    results: dict[str, Sums] = json.loads(path.read_bytes()) if path.is_file() else {}
    for k, pools in product(range(arguments.episodes), GROUPS.values()):
        first = k < FIRST
        for cell in cells(arguments.half, pools) if first or pools[0] in WITH_RIVALS else []:
            sums = results.get(cell.name, {})
            due = sums.get("episodes", 0) == 5 * k / cell.n_way
            if due and time.process_time() < 60 * arguments.minutes:
                task = draw(cell, sets[cell.data], sums.get("episodes", 0))
                found = our_losses(task)
                if first and pools[0] in WITH_RIVALS:
                    found |= rivals_losses(cell.n_shot, task) | {f"{x}, first": found[x] for x in ("no pool", "pool")}
                results[cell.name] = added(sums, found)
                write_atomically(path, json.dumps(results).encode())
    done = {c.name: results[c.name] for c in cells(arguments.half) if c.name in results}
    groups = {
        f"{shots}-shot, {title}": [
            (c.n_way, results[c.name]) for c in cells(arguments.half, pools) if c.n_shot == shots and c.name in results
        ]
        for (title, pools), shots in product(GROUPS.items(), (1, 5))
    }
    print(table(done, list(CANDIDATES)), summary(groups), sep="\n\n")
    if arguments.half == "held-out":
        put_into_docs("pool", table(done, list(CANDIDATES)))
        put_into_docs("pool, summary", summary(groups))


if __name__ == "__main__":
    main()
