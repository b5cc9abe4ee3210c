"""Learning curves of next_to_label: python -m benchmarks.estimator_active [--draws 20]

Ten-way tasks of held-out classes of the embeddings in $POLYSHOT_DATA. The pool has 30 rows per class on CLINC150 and 19
on CUB, whose classes have 30 images. Ten rows are labelled at a time, five times. Accuracy and log-loss are measured on
20 queries per class (CUB: 10) that are not in the pool. Draw k of a task has the seed (crc32 of its name, k).

- "one per class": every class has one label at first;
- "cold start": only two classes have one, and nobody knows that there are eight more. A class without a label has the
  probability 0.0001.
- "strangers": one label per class, and the pool has as many rows of ten other classes. Their labels are asked for and
  thrown away. next_to_label gets new_classes=False.

All ways choose rows for the same classifier, OneVsEachClassifier: at random; the smallest margins between the two most
probable classes; and k-means++ on unit vectors, which draws rows in proportion to the squared distance from the nearest
labelled or chosen one. Results are written after each draw, and the next run continues. The tables are written into
docs/estimator-active.md.
"""

import argparse
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, Data, load_all
from polyshot.estimator import OneVsEachClassifier
from polyshot.system.files import write_atomically

RESULTS = Path("benchmarks/results/estimator_active.json")
WAYS, BATCH, ROUNDS, LEAST = 10, 10, 5, 1e-4
TASKS = ("one per class", "cold start", "strangers")
Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def at_random(model: OneVsEachClassifier, X: Array, task: str, rng: np.random.Generator) -> Rows:
    return rng.permutation(len(X))[:BATCH]


def margin(model: OneVsEachClassifier, X: Array, task: str, rng: np.random.Generator) -> Rows:
    p = np.sort(model.predict_proba(X), 1)
    return np.argsort(p[:, -1] - p[:, -2], kind="stable")[:BATCH]


def k_means_plus_plus(model: OneVsEachClassifier, X: Array, task: str, rng: np.random.Generator) -> Rows:
    U, labelled = normalize(X), normalize(model.fitted_.examples.X)
    nearest = (2 - 2 * U @ labelled.T).min(1).clip(0)
    chosen: list[int] = []
    for _ in range(BATCH):
        weights = nearest.copy()
        weights[chosen] = 0
        chosen.append(int(rng.choice(len(U), p=weights / weights.sum())))
        nearest = np.minimum(nearest, (2 - 2 * U @ U[chosen[-1]]).clip(0))
    return np.array(chosen)


def ours(model: OneVsEachClassifier, X: Array, task: str, rng: np.random.Generator) -> Rows:
    return model.next_to_label(X, BATCH, new_classes=task != "strangers")


METHODS: dict[str, Callable[[OneVsEachClassifier, Array, str, np.random.Generator], Rows]] = {
    "random": at_random,
    "margin": margin,
    "k-means++": k_means_plus_plus,
    "next_to_label": ours,
}


def curves(data: Data, name: str, task: str, half: str, k: int) -> dict[str, list[tuple[float, float]]]:
    """Log-loss and accuracy of each method after 0, 1, ... rounds of draw k."""
    seed = zlib.crc32(f"{name}/{half}/{task}".encode())
    rng = np.random.default_rng([seed, k])
    classes = np.unique(data.labels)
    order = rng.permutation(classes[classes % 2 == (half == "held-out")])[: 2 * WAYS]
    rows = [rng.permutation(np.flatnonzero(data.labels == c)) for c in order]
    in_pool = min(31, len(rows[0]) - 10)
    pool = [r[1:in_pool] for r in (rows if task == "strangers" else rows[:WAYS])]
    hidden = np.concatenate([np.full(len(r), i if i < WAYS else -1) for i, r in enumerate(pool)])
    queries = [r[in_pool : in_pool + 20] for r in rows[:WAYS]]
    truth = np.repeat(np.arange(WAYS), [len(q) for q in queries])
    asked, start = data.X[np.concatenate(queries)], 2 if task == "cold start" else WAYS
    found: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
    for method, choose in METHODS.items():
        X, y = data.X[[r[0] for r in rows[:start]]], np.arange(start)
        left, labels, rng = data.X[np.concatenate(pool)], hidden, np.random.default_rng([seed, k, 1])
        for round_number in range(ROUNDS + 1):
            model = OneVsEachClassifier().fit(X, y)
            p = np.full((len(asked), WAYS), LEAST)
            p[:, model.classes_] = np.maximum(model.predict_proba(asked), LEAST)
            p /= p.sum(1, keepdims=True)
            loss = -np.log(p[np.arange(len(truth)), truth]).mean()
            found[method].append((float(loss), float((p.argmax(1) == truth).mean())))
            if round_number < ROUNDS:
                chosen = choose(model, left, task, rng)
                known = chosen[labels[chosen] >= 0]
                X, y = np.concatenate([X, left[known]]), np.r_[y, labels[known]]
                left, labels = np.delete(left, chosen, 0), np.delete(labels, chosen)
    return found


def table(results: dict[str, list[Any]]) -> str:
    """Mean log-loss and accuracy after each round."""
    titles = [f"{BATCH * (i + 1)} asked" for i in range(ROUNDS)]
    lines = [
        "| task | draws | way | " + " | ".join(["at first", *titles]) + " |",
        "|---|---:|---|" + "---:|" * (ROUNDS + 1),
    ]
    for name, draws in results.items():
        for method in METHODS:
            loss, accuracy = np.mean([draw[method] for draw in draws], 0).T
            cells = [f"{x:.3f}, {100 * a:.1f} %" for x, a in zip(loss, accuracy, strict=True)]
            lines.append(f"| {name} | {len(draws)} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(results: dict[str, list[Any]]) -> str:
    """Log-loss after the rounds, relative to random, on average over rounds; and in how many draws ours was better."""
    lines = [
        "| task | " + " | ".join(METHODS) + " | draws better than k-means++ |",
        "|---|" + "---:|" * (len(METHODS) + 1),
    ]
    for name, draws in results.items():
        losses = {method: np.array([draw[method] for draw in draws])[:, 1:, 0] for method in METHODS}
        ratios = [f"{(losses[m].mean(0) / losses['random'].mean(0)).mean():.2f}" for m in METHODS]
        better = int(np.sum(losses["next_to_label"].mean(1) < losses["k-means++"].mean(1)))
        lines.append(f"| {name} | " + " | ".join(ratios) + f" | {better} of {len(draws)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", default="held-out", choices=["design", "held-out"])
    parser.add_argument("--draws", type=int, default=20)
    arguments = parser.parse_args()
    sets = load_all()
    path = RESULTS.with_stem(RESULTS.stem + ("_design" if arguments.half == "design" else ""))
    results = json.loads(path.read_bytes()) if path.is_file() else {}
    results = {f"{name}, {task}": results.get(f"{name}, {task}", []) for task in TASKS for name in EMBEDDINGS}
    for k in range(arguments.draws):
        for task in TASKS:
            for name in EMBEDDINGS:
                draws = results[f"{name}, {task}"]
                if len(draws) == k:
                    draws.append(curves(sets[name], name, task, arguments.half, k))
                    write_atomically(path, json.dumps(results).encode())
    done = {name: draws for name, draws in results.items() if draws}
    print(summary(done), table(done), sep="\n\n")
    if arguments.half == "held-out":
        put_into_docs("active, summary", summary(done))
        put_into_docs("active", table(done))


if __name__ == "__main__":
    main()
