"""Wrong labels found and accuracy foreseen: python -m benchmarks.estimator_suspects [--tasks 40] [--only TABLE]

Tasks of held-out classes of the embeddings, and of scikit-learn's digits; task k is a pure function of its cell and k.

- "suspects": one label in twenty is changed to another class of the task. The table has the mean AUROC of finding them
  over `--tasks` tasks. Ours is `suspect_labels`; the rivals' score is the probability of the label by a
  LogisticRegression that was fitted without the example, in five folds (or as many as the smallest class has examples).
  cleanlab's own scores, all that `get_label_quality_scores` offers, are made from the probabilities of C = 10.
- "expected accuracy": how often the interval of `expected_accuracy` contains the accuracy on up to 40 further examples
  per class, over five times as many tasks (20-way: as many). The accuracy is itself measured with some noise.

The tables are written into docs/estimator-guarantees.md. A run takes about three minutes.
"""

import argparse
import re
import warnings
import zlib

import numpy as np
from cleanlab.rank import get_label_quality_scores
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, Cell, Data, load_all
from polyshot.estimator import OneVsEachClassifier

LEVELS = (0.8, 0.9, 0.95)
STRENGTHS = (1.0, 10.0, 100.0)
MOST_QUERIES = 40
CLEANLAB = {  # the probability of the label itself is cleanlab's default; it is the column of LogisticRegression(C=10)
    "cleanlab, adjusted": {"method": "self_confidence", "adjust_pred_probs": True},
    "cleanlab, margin": {"method": "normalized_margin"},
    "cleanlab, entropy": {"method": "confidence_weighted_entropy"},
}
Task = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.random.Generator]


def draw(cell: Cell, data: Data, k: int) -> Task:
    """Examples, their labels, further examples, their labels, and the generator that drew them."""
    rng = np.random.default_rng([zlib.crc32(f"suspects {cell.name}".encode()), k])
    classes = np.unique(data.labels)
    if cell.half != "all":
        classes = classes[classes % 2 == (cell.half == "held-out")]
    rows = [rng.permutation(np.flatnonzero(data.labels == c)) for c in rng.permutation(classes)[: cell.n_way]]
    support = np.concatenate([r[: cell.n_shot] for r in rows])
    others = [r[cell.n_shot : cell.n_shot + MOST_QUERIES] for r in rows]
    labels = np.repeat(np.arange(cell.n_way), [len(r) for r in others])
    y = np.repeat(np.arange(cell.n_way), cell.n_shot)
    return data.X[support], y, data.X[np.concatenate(others)], labels, rng


def suspects(cell: Cell, data: Data, n_tasks: int) -> dict[str, float]:
    """Mean AUROC of finding the flipped labels, by method."""
    areas: dict[str, list[float]] = {}
    for k in range(n_tasks):
        X, y, _, _, rng = draw(cell, data, k)
        flipped = rng.permutation(len(y))[: max(1, round(len(y) / 20))]
        y[flipped] = (y[flipped] + rng.integers(1, cell.n_way, len(flipped))) % cell.n_way
        wrong = np.isin(np.arange(len(y)), flipped)
        rows, p = OneVsEachClassifier().fit(X, y).suspect_labels()
        areas.setdefault("suspect_labels", []).append(roc_auc_score(wrong[rows], -np.nan_to_num(p, nan=1.0)))
        folds = StratifiedKFold(min(5, int(np.bincount(y).min())), shuffle=True, random_state=k)
        for strength in STRENGTHS:
            model = LogisticRegression(C=strength, max_iter=1000)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
            own = p[np.arange(len(y)), y]
            areas.setdefault(f"LogisticRegression(C={strength:g})", []).append(roc_auc_score(wrong, -own))
            if strength == STRENGTHS[1]:
                for name, options in CLEANLAB.items():
                    quality = get_label_quality_scores(y, p, **options)
                    areas.setdefault(name, []).append(roc_auc_score(wrong, -quality))
    return {name: float(np.mean(values)) for name, values in areas.items()}


def foresight(cell: Cell, data: Data, n_tasks: int) -> list[float]:
    """Mean estimate, mean accuracy, and for each level the share of tasks in the interval and its mean width."""
    rows = []
    for k in range(n_tasks):
        X, y, queries, labels, _ = draw(cell, data, k)
        model = OneVsEachClassifier().fit(X, y)
        accuracy = model.score(queries, labels)
        row = [model.expected_accuracy().accuracy, accuracy]
        for level in LEVELS:
            _, low, high = model.expected_accuracy(level)
            row += [float(low <= accuracy <= high), high - low]
        rows.append(row)
    return [float(x) for x in np.mean(rows, 0)]


def suspect_table(chosen: list[Cell], data: dict[str, Data], n_tasks: int) -> str:
    names = ["suspect_labels", *(f"LogisticRegression(C={c:g})" for c in STRENGTHS), *CLEANLAB]
    lines = ["| task | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for cell in chosen:
        areas = suspects(cell, data[cell.data], n_tasks)
        lines.append(f"| {cell.name} | " + " | ".join(f"{areas[name]:.3f}" for name in names) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def accuracy_table(chosen: list[Cell], data: dict[str, Data], n_tasks: int) -> str:
    titles = [f"{level:g}: covered (at least), width" for level in LEVELS]
    lines = ["| task | tasks | expected | measured | " + " | ".join(titles) + " |", "|---|" + "---:|" * 6]
    for cell in chosen:
        n = n_tasks if cell.n_way > 5 else 5 * n_tasks
        expected, measured, *rest = foresight(cell, data[cell.data], n)
        line = f"| {cell.name} | {n} | {expected:.3f} | {measured:.3f} |"
        for level, covered, width in zip(LEVELS, rest[::2], rest[1::2], strict=True):
            line += f" {covered:.3f} ({binom.ppf(0.01, n, level) / n:.3f}), {width:.2f} |"
        lines.append(line)
        print(line, flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--match", default="")
    parser.add_argument("--only", choices=("suspects", "expected accuracy"), help="one of the two tables")
    arguments = parser.parse_args()
    data = load_all()
    halves = [(name, "held-out") for name in EMBEDDINGS if name in data] + [("digits", "all")]

    def chosen(*sizes: tuple[int, int]) -> list[Cell]:
        every = [Cell(name, half, *size) for name, half in halves for size in sizes if name != "digits" or size[0] <= 5]
        return [cell for cell in every if re.search(arguments.match, cell.name)]

    tables = {
        "suspects": lambda: suspect_table(chosen((5, 10), (20, 5)), data, arguments.tasks),
        "expected accuracy": lambda: accuracy_table(chosen((5, 2), (5, 5), (5, 10), (20, 5)), data, arguments.tasks),
    }
    for name in [arguments.only] if arguments.only else tables:
        table = tables[name]()
        if not arguments.match:
            put_into_docs(name, table)


if __name__ == "__main__":
    main()
