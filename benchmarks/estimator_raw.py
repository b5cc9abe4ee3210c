"""Raw features as they come from a table: python -m benchmarks.estimator_raw [--tasks 10]

Log-loss on tasks of scikit-learn's small sets, whose columns nobody has scaled, with C classes (at most five), 15
queries per class, and the task's number as the seed. "One unit" is the classifier as it was before features on scales
of their own got units of their own (`_OWN_SCALES` of estimator/covariance.py). Each row also has the smallest and the
largest ratio, over the tasks, of the largest spread of a feature to the median one. The same ratio is shown for the
first 64 numbers, and the first 48 principal components, of the design classes of the two embedding sets. The table is
written into docs/estimator-lab-notes.md.
"""

import argparse
import warnings
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, load_all
from polyshot.estimator import OneVsEachClassifier, covariance

SHOTS = (1, 5)
TABLES = {"wine": load_wine, "breast_cancer": load_breast_cancer, "iris": load_iris, "digits": load_digits}
Task = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def draw(name: str, X: np.ndarray, labels: np.ndarray, n_shot: int, k: int) -> Task:
    """Examples, labels, queries and their labels of task k."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), n_shot, k])
    rows = [rng.permutation(np.flatnonzero(labels == c))[: n_shot + 15] for c in rng.permutation(np.unique(labels))[:5]]
    truth = np.repeat(np.arange(len(rows)), [len(r) - n_shot for r in rows])
    support, queries = np.concatenate([r[:n_shot] for r in rows]), np.concatenate([r[n_shot:] for r in rows])
    return X[support], np.repeat(np.arange(len(rows)), n_shot), X[queries], truth


def with_one_unit(X: np.ndarray, y: np.ndarray) -> OneVsEachClassifier:
    with patch.object(covariance, "_OWN_SCALES", np.inf):
        return OneVsEachClassifier().fit(X, y)


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "OneVsEachClassifier": lambda X, y: OneVsEachClassifier().fit(X, y),
    "one unit": with_one_unit,
    "StandardScaler + OneVsEachClassifier": lambda X, y: make_pipeline(StandardScaler(), OneVsEachClassifier()).fit(
        X, y
    ),
    "StandardScaler + LogisticRegression": lambda X, y: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000)
    ).fit(X, y),
}


def spread_ratio(X: np.ndarray) -> float:
    spreads = X.std(0)
    return float(spreads.max() / np.median(spreads[spreads > 0]))


def ratios(tasks: list[Task]) -> str:
    values = [spread_ratio(task[0]) for task in tasks]
    return f"{min(values):.3g} to {max(values):.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10)
    n_tasks = parser.parse_args().tasks
    warnings.simplefilter("ignore")
    lines = ["| task | " + " | ".join(METHODS) + " | ratio of spreads |", "|---|" + "---:|" * (len(METHODS) + 1)]
    for name, read in TABLES.items():
        X, labels = read(return_X_y=True)
        for n_shot in SHOTS:
            tasks = [draw(name, X, labels, n_shot, k) for k in range(n_tasks)]
            means = []
            for fit in METHODS.values():
                own = [
                    fit(X_k, y).predict_proba(queries)[np.arange(len(truth)), truth] for X_k, y, queries, truth in tasks
                ]
                means.append(-np.log(np.clip(np.concatenate(own), 1e-12, None)).mean())
            cells = [f"{x:.4f}" for x in means]
            lines.append(f"| {name}/{n_shot}-shot | " + " | ".join([*cells, ratios(tasks)]) + " |")
            print(lines[-1], flush=True)
    for name, data in load_all().items():
        if name in EMBEDDINGS:
            design = data.labels % 2 == 0
            X = data.X[design]
            directions = np.linalg.svd(X[::9] - X.mean(0), full_matrices=False)[2][:48]
            for title, some in (("first 64", X[:, :64]), ("48 components", (X - X.mean(0)) @ directions.T)):
                tasks = [draw(name, some, data.labels[design], n_shot, k) for n_shot in SHOTS for k in range(100)]
                lines.append(f"| {name}, {title}" + " | -" * len(METHODS) + f" | {ratios(tasks)} |")
                print(lines[-1], flush=True)
    put_into_docs("raw features", "\n".join(lines))


if __name__ == "__main__":
    main()
