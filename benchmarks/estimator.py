"""OneVsEachClassifier against what people use today, on identical episodes: `make bench-estimator`.

python -m benchmarks.estimator [--episodes 200] [--match REGEX] [--methods REGEX] [--seconds S] [--minutes M]

It runs in rounds: 1 episode of every cell by every method, then 3, 10, 30, 100, and --episodes. So there is a whole
table after the first round, wherever it is stopped. The JSON has one entry per cell and method, with the log-loss of
every episode and the means of all measures over the episodes of each round and over all. It is written after each
entry, and the next run adds to it. A full run takes about 1,300 minutes on one core, 600 of them for
GaussianProcessClassifier. --seconds limits the time of a method in a cell, which then has fewer episodes there (the
table compares it with ours on the last round that both have). A method is left out of a cell if an episode of a smaller
cell took a quarter of that time.
"""

import argparse
import itertools
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.estimator_rivals import RIVALS, Impossible, Predictor
from benchmarks.estimator_table import OURS, RESULTS, Entry, write_table
from benchmarks.estimator_tasks import SHOTS, Cell, Data, Episode, cells, episodes, load_all
from polyshot.estimator import OneVsEachClassifier

N_BINS = 15
ROUNDS = (1, 3, 10, 30, 100)


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


def extend(entry: Entry, cell: Cell, data: Data, method: str, n_episodes: int, seconds: float) -> None:
    """Add episodes to the entry until there are `n_episodes` or all of them took `seconds`."""
    losses, means = entry.setdefault("log_loss", []), entry.setdefault("means", {})
    for task in episodes(cell, data, n_episodes, len(losses)):
        if spent(entry) > seconds:
            return
        n = len(losses)
        try:
            row, gaps = measure(task, method)
        except Impossible as reason:
            entry["impossible"] = str(reason)
            return
        before = means.get(str(n), {})
        means[str(n + 1)] = {name: round((n * before.get(name, 0.0) + x) / (n + 1), 7) for name, x in row.items()}
        if n not in ROUNDS:
            means.pop(str(n), None)
        losses.append(round(row["log_loss"], 5))
        entry["bin_gaps"] = [round(a + b, 5) for a, b in zip(entry.get("bin_gaps", [0] * N_BINS), gaps, strict=True)]


def spent(entry: Entry) -> float:
    """Seconds of all its episodes."""
    if not entry.get("log_loss"):
        return 0.0
    n = len(entry["log_loss"])
    last = entry["means"][str(n)]
    return float(n * (last["fit_seconds"] + last["predict_seconds"]))


def warm_up() -> None:
    """So that no episode pays for what is compiled or imported at first use."""
    X, y = np.random.default_rng(0).standard_normal((12, 128)), np.arange(12) % 3
    for make in METHODS.values():
        make(X, y)(X)


def too_slow(results: dict[str, Any], cell: Cell, method: str, seconds: float) -> bool:
    """Whether an episode of a smaller cell of these data took a quarter of the time for this one."""
    for n_way in (5, 20, 50):
        for n_shot in SHOTS:
            entry = results.get(replace(cell, n_way=n_way, n_shot=n_shot).name, {}).get(method, {})
            smaller = n_way <= cell.n_way and n_shot <= cell.n_shot and (n_way, n_shot) != (cell.n_way, cell.n_shot)
            if smaller and entry.get("log_loss") and spent(entry) / len(entry["log_loss"]) > seconds / 4:
                return True
    return False


def save(path: Path, results: dict[str, Any]) -> None:
    """A line an entry, so that a new run changes few lines; whole, or not at all."""
    lines = [
        f' "{cell}": {{\n'
        + ",\n".join(f'  "{method}": {json.dumps(entry, separators=(",", ":"))}' for method, entry in methods.items())
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
    parser.add_argument("--seconds", type=float, default=np.inf, help="longest time for a method in a cell")
    parser.add_argument("--minutes", type=float, default=np.inf, help="longest time in all")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    data = load_all()
    warm_up()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    chosen = sorted((c for c in cells(data) if re.search(arguments.match, c.name)), key=lambda c: c.n_way * c.n_shot)
    methods = [m for m in METHODS if re.search(arguments.methods, m)]
    end = time.monotonic() + 60 * arguments.minutes
    for n_episodes in [n for n in ROUNDS if n < arguments.episodes] + [arguments.episodes]:
        for cell, method in itertools.product(chosen, methods):
            entry = results.setdefault(cell.name, {}).get(method, {})
            done = "impossible" in entry or len(entry.get("log_loss", [])) >= n_episodes
            out_of_time = spent(entry) > arguments.seconds or too_slow(results, cell, method, arguments.seconds)
            if done or out_of_time or time.monotonic() > end:
                continue
            extend(entry, cell, data[cell.data], method, n_episodes, arguments.seconds)
            results[cell.name][method] = entry
            save(arguments.out, results)
            mean = f"{np.mean(entry['log_loss']):.4f}" if entry["log_loss"] else entry["impossible"]
            print(cell.name, method, len(entry.get("log_loss", [])), mean, f"{spent(entry):.1f} s", flush=True)
        # in the order of the cells; data sets that are not here now keep their rows
        names = [name for name in dict.fromkeys([*(c.name for c in cells(data)), *results]) if name in results]
        write_table({name: results[name] for name in names}, arguments.out.with_suffix(".md"))


if __name__ == "__main__":
    main()
