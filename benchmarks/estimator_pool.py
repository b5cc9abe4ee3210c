"""What unlabelled examples are worth: log-loss with a pool, relative to none, beside scikit-learn's rivals.

python -m benchmarks.estimator_pool [--half design]

Each cell has 15 or 40 unlabelled examples per class, alone or with as many of other classes ("strangers"). The
embeddings are those of $POLYSHOT_DATA. Episode k of a cell has the seed (crc32 of the cell's name, k). Queries are not
in the pool. There are 15 per class (5 ways) or 5 (20 ways).
"""

import argparse
import zlib
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

from benchmarks.estimator_tasks import EMBEDDINGS, Data, load_all
from polyshot.estimator import OneVsEachClassifier

EPISODES = {5: 20, 20: 10}
METHODS = {
    "no pool": lambda: OneVsEachClassifier(),
    "pool": lambda: OneVsEachClassifier(unlabeled=-1),
    "self-training": lambda: SelfTrainingClassifier(LogisticRegression(C=100, max_iter=1000), threshold=0.75),
    "spreading": lambda: LabelSpreading(kernel="knn", n_neighbors=10, alpha=0.8, max_iter=200),
    "propagation": lambda: LabelPropagation(kernel="knn", n_neighbors=10, max_iter=5000),
}
Array = NDArray[np.float64]
Task = tuple[Array, NDArray[np.int64], Array, Array, NDArray[np.int64]]


def tasks(data: Data, name: str, half: str, n_way: int, n_shot: int, n_pool: int, strangers: bool) -> Iterator[Task]:
    """X, y, pool, queries and their labels of every episode."""
    classes = np.unique(data.labels)
    classes = classes[classes % 2 == (half == "held-out")]
    n_query = 15 if n_way <= 5 else 5
    seed = zlib.crc32(f"{name}/{half}/{n_way}/{n_shot}/{n_pool}/{int(strangers)}".encode())
    for k in range(EPISODES[n_way]):
        generator = np.random.default_rng([seed, k])
        order = generator.permutation(classes)
        rows = [generator.permutation(np.flatnonzero(data.labels == c)) for c in order[: 2 * n_way]]
        seen, others = rows[:n_way], rows[n_way:]
        pool = [r[n_shot + n_query :][:n_pool] for r in seen] + [r[:n_pool] for r in others if strangers]
        queries = [r[n_shot : n_shot + n_query] for r in seen]
        labels = np.concatenate([np.full(len(q), i) for i, q in enumerate(queries)])
        support, unlabelled, asked = (
            data.X[np.concatenate(parts)] for parts in ([r[:n_shot] for r in seen], pool, queries)
        )
        yield support, np.repeat(np.arange(n_way), n_shot), unlabelled, asked, labels


def probabilities(method: str, task: Task) -> Array:
    """Class probabilities of the queries; the rivals get unit vectors."""
    X, y, pool, queries, _ = task
    rows, labels = np.concatenate([X, pool]), np.concatenate([y, np.full(len(pool), -1)])
    if method == "no pool":
        rows, labels = X, y
    if "pool" not in method:
        rows, queries = normalize(rows), normalize(queries)
    found: Array = METHODS[method]().fit(rows, labels).predict_proba(queries)
    found = np.where(np.isfinite(found), found, 0)  # propagation divides by zero where no label arrives
    found = np.clip(found, 1e-3 / found.shape[1], None)
    return found / found.sum(1, keepdims=True)


def calibration_error(p: Array, labels: NDArray[np.int64]) -> float:
    """Expected calibration error with 15 bins."""
    gap = p.max(1) - (p.argmax(1) == labels)
    bins = np.minimum((p.max(1) * 15).astype(int), 14)
    return float(sum(abs(gap[bins == b].sum()) for b in range(15)) / len(gap))


def row(data: Data, name: str, half: str, *size: Any) -> dict[str, Any]:
    """Log-losses of all methods, and our calibration error and that without the pool."""
    losses: dict[str, list[float]] = {method: [] for method in METHODS}
    answers: dict[str, list[Array]] = {"pool": [], "no pool": []}
    truth = []
    for task in tasks(data, name, half, *size):
        labels = task[-1]
        truth.append(labels)
        for method in METHODS:
            p = probabilities(method, task)
            losses[method].append(float(-np.log(p[np.arange(len(labels)), labels]).mean()))
            if method in answers:
                answers[method].append(p)
    ece = {m: calibration_error(np.concatenate(p), np.concatenate(truth)) for m, p in answers.items()}
    return {"loss": {m: float(np.mean(x)) for m, x in losses.items()}, "ece": ece}


def main() -> None:
    """Print one row per cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", default="held-out", choices=["design", "held-out"])
    parser.add_argument("--ways", type=int, nargs="+", default=[5, 20])
    arguments = parser.parse_args()
    print("| cell | no pool | " + " | ".join(f"{m}, relative" for m in list(METHODS)[1:]) + " | ECE | ECE, no pool |")
    print("|---|" + "---:|" * (len(METHODS) + 2))
    sets = load_all()
    for n_way, n_shot, strangers, n_pool, name in product(arguments.ways, (1, 5), (False, True), (40, 15), EMBEDDINGS):
        found = row(sets[name], name, arguments.half, n_way, n_shot, n_pool, strangers)
        base = found["loss"]["no pool"]
        title = f"{name}/{n_way}-way/{n_shot}-shot/{n_pool} per class{', strangers' if strangers else ''}"
        ratios = " | ".join(f"{found['loss'][m] / base:.2f}" for m in list(METHODS)[1:])
        print(
            f"| {title} | {base:.4f} | {ratios} | {found['ece']['pool']:.3f} | {found['ece']['no pool']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
