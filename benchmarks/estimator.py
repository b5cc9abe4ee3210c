"""OneVsEachClassifier against what people use today, on identical episodes: `make bench-estimator`.

python -m benchmarks.estimator [--episodes 200] [--match REGEX] [--methods REGEX] [--seconds 60] [--out estimator.json]

The JSON has one entry a cell and method with the numbers of every episode, is written after each, and is added to by
the next run, so that a run can be stopped at any time and taken up again. A method stops in a cell after --seconds and
then has fewer episodes there; the table compares it with ours on those it has.
"""

import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.estimator_rivals import RIVALS, Impossible, Predictor
from benchmarks.estimator_table import OURS, write_table
from benchmarks.estimator_tasks import Cell, Data, Episode, cells, episodes, load_all
from polyshot.estimator import OneVsEachClassifier

N_BINS = 15


def one_vs_each(X: np.ndarray, y: np.ndarray) -> Predictor:
    model = OneVsEachClassifier().fit(X, y)
    return lambda queries: (model.predict_proba(queries), {"outlier score": model.outlier_score(queries)})


METHODS = {OURS: one_vs_each} | RIVALS


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    truth = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
    return float(roc_auc_score(truth, np.nan_to_num(np.r_[inside, outside])))


def measure(task: Episode, method: str) -> tuple[dict[str, float], np.ndarray]:
    """The numbers of one method on one episode, and hits less confidence, summed in each bin of confidence."""
    start = time.perf_counter()
    predict = METHODS[method](task.X, task.y)
    middle = time.perf_counter()
    p, inside = predict(task.queries)
    end = time.perf_counter()
    own, confidence, hit = p[np.arange(len(p)), task.labels], p.max(1), p.argmax(1) == task.labels
    row = {
        "log_loss": float(-np.log(own.clip(1e-12)).mean()),
        "accuracy": float(hit.mean()),
        "Brier": float(((p - np.eye(p.shape[1])[task.labels]) ** 2).sum(1).mean()),
        "fit_seconds": middle - start,
        "predict_seconds": end - middle,
    }
    for kind, queries in (("unseen", task.unseen), ("out_of_scope", task.out_of_scope)):
        if len(queries):
            outside = predict(queries)[1]
            row |= {f"{kind}: {name}": auroc(inside[name], outside[name]) for name in outside}
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    return row, np.bincount(bins, hit - confidence, N_BINS) / len(p)


def extend(entry: dict[str, Any], cell: Cell, data: Data, method: str, n_episodes: int, seconds: float) -> None:
    """Add episodes to the entry until there are `n_episodes` or `seconds` have passed (but one at least)."""
    first, began = len(entry.get("log_loss", [])), time.perf_counter()
    for task in episodes(cell, data, n_episodes, first):
        try:
            row, gaps = measure(task, method)
        except Impossible as reason:
            entry["impossible"] = str(reason)
            return
        for name, value in row.items():
            entry.setdefault(name, []).append(round(value, 5))
        entry["bin_gaps"] = [round(a + b, 5) for a, b in zip(entry.get("bin_gaps", [0] * N_BINS), gaps, strict=True)]
        if time.perf_counter() - began > seconds:
            return


def save(path: Path, results: dict[str, Any]) -> None:
    """A line an entry, so that a new run changes few lines; whole, or not at all."""
    lines = [
        f' "{cell}": {{\n'
        + ",\n".join(f'  "{method}": {json.dumps(entry)}' for method, entry in methods.items())
        + "\n }"
        for cell, methods in results.items()
    ]
    part = path.with_suffix(".part")
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    os.replace(part, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--match", default="", help="only the cells whose name this regular expression finds")
    parser.add_argument("--methods", default="", help="only the methods whose name this regular expression finds")
    parser.add_argument("--seconds", type=float, default=60.0, help="longest time for a method in a cell")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/estimator.json"))
    arguments = parser.parse_args()
    data = load_all()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    for cell in cells(data):
        if not re.search(arguments.match, cell.name):
            continue
        done = results.setdefault(cell.name, {})
        for method in METHODS:
            entry = done.get(method, {})
            if not re.search(arguments.methods, method) or "impossible" in entry:
                continue
            if len(entry.get("log_loss", [])) < arguments.episodes:
                extend(entry, cell, data[cell.data], method, arguments.episodes, arguments.seconds)
                done[method] = entry
                save(arguments.out, results)
                mean = f"{np.mean(entry['log_loss']):.4f}" if "log_loss" in entry else entry["impossible"]
                print(cell.name, method, len(entry.get("log_loss", [])), mean, flush=True)
    write_table(results, arguments.out.with_suffix(".md"))


if __name__ == "__main__":
    main()
