"""Do the guarantees hold on real embeddings? python -m benchmarks.estimator_conformal [--tasks 500] [--minutes M]

One query per task, so that the tasks are independent and binomial bounds apply: 5-way tasks of held-out classes with 1,
2, 5 and 10 shots, episodes 0, 1, ... of the benchmark, and in episode k the query number k. Beside `predict_set`:

- "naive": the most probable labels until their probabilities of `predict_proba` add up to the level;
- split conformal sets by MAPIE and crepes (estimator_conformal_rivals.py), from two shots on.

The sums over tasks are written after each round of 25 tasks per cell, and the next run adds to them. The tables are
written into docs/estimator-guarantees.md. A full run takes about 20 minutes of one core.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.estimator_conformal_rivals import RIVALS, rival_sets
from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, Cell, Data, Episode, episodes, load_all
from polyshot.estimator import OneVsEachClassifier
from polyshot.system.files import write_atomically

RESULTS = Path("benchmarks/results/estimator_conformal.json")
LEVELS = (0.8, 0.9, 0.95)
RATES = (0.05, 0.1, 0.2)
SHOTS = (1, 2, 5, 10)
ROUND = 25
METHODS = {
    "predict_set": "predict_set",
    "per class": "predict_set, per_class=True",
    "naive": "naive",
    **{name: name for name in RIVALS},
}
Sums = dict[str, float]


def naive_set(p: np.ndarray, level: float) -> np.ndarray:
    """The most probable labels until their probabilities add up to the level."""
    order = np.argsort(-p)
    chosen = np.zeros(len(p), dtype=bool)
    chosen[order[: 1 + int(np.sum(np.cumsum(p[order]) < level))]] = True
    return chosen


def measure(task: Episode, k: int) -> Sums:
    """What one query adds: whether each set has its label, how large the set is, and whether alarms were raised."""
    i = k % len(task.labels)
    query, label, stranger = task.queries[i : i + 1], task.labels[i], task.unseen[i : i + 1]
    model = OneVsEachClassifier().fit(task.X, task.y)
    p = {"predict_set": model.predict_p(query)[0], "per class": model.predict_p(query, per_class=True)[0]}
    row: Sums = {"tasks": 1}
    for level in LEVELS:
        sets = {name: values > 1 - level for name, values in p.items()}
        sets["naive"] = naive_set(model.predict_proba(query)[0], level)
        for name, chosen in sets.items():
            row |= {f"{name} {level} covered": int(chosen[label]), f"{name} {level} size": int(chosen.sum())}
    known, strange = model.outlier_p_value(np.r_[query, stranger])
    for rate in RATES:
        row |= {f"alarm {rate} known": int(known < rate), f"alarm {rate} unseen": int(strange < rate)}
    return row


def extend(sums: Sums, cell: Cell, data: Data, n_tasks: int) -> None:
    first = int(sums.get("tasks", 0))
    for k, task in enumerate(episodes(cell, data, n_tasks, first), first):
        for name, x in measure(task, k).items():
            sums[name] = sums.get(name, 0) + x


def extend_rivals(sums: Sums, cell: Cell, data: Data, n_tasks: int) -> None:
    first = int(sums.get(f"{RIVALS[0]} tasks", 0))
    for k, task in enumerate(episodes(cell, data, n_tasks, first), first):
        i, row = k % len(task.labels), Sums()
        query, label = task.queries[i : i + 1], task.labels[i]
        for name, level, chosen in rival_sets(task.X, task.y, query, LEVELS, seed=k):
            row[f"{name} tasks"] = 1
            row |= {f"{name} {level} covered": int(chosen[label]), f"{name} {level} size": int(chosen.sum())}
        for name, x in row.items():
            sums[name] = sums.get(name, 0) + x


def set_table(results: dict[str, Sums]) -> str:
    lines = [
        "| task | tasks (of rivals) | level | at least | " + " | ".join(METHODS.values()) + " |",
        "|---|---:|---:|---:|" + "---|" * len(METHODS),
    ]
    for cell, sums in results.items():
        n = int(sums["tasks"])
        for level in LEVELS:
            rivals = f" ({int(sums[f'{RIVALS[0]} tasks'])})" if f"{RIVALS[0]} tasks" in sums else ""
            line = f"| {cell} | {n}{rivals} | {level} | {binom.ppf(0.001, n, level) / n:.3f} |"
            for name in METHODS:
                of = sums.get(f"{name} tasks", n)
                known = f"{name} {level} covered" in sums
                covered, size = (sums.get(f"{name} {level} {what}", 0) / of for what in ("covered", "size"))
                line += f" {covered:.3f}, {size:.2f} |" if known else " - |"
            lines.append(line)
    return "\n".join(lines)


def alarm_table(results: dict[str, Sums]) -> str:
    titles = [f"{what}, p < {rate}" for rate in RATES for what in ("false alarms", "unseen found")]
    lines = ["| task | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    for cell, sums in results.items():
        rates = [sums[f"alarm {rate} {who}"] / sums["tasks"] for rate in RATES for who in ("known", "unseen")]
        lines.append(f"| {cell} | " + " | ".join(f"{x:.3f}" for x in rates) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    data, start = load_all(), time.monotonic()
    results: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    for n_tasks in [*range(ROUND, arguments.tasks, ROUND), arguments.tasks]:
        for cell in [Cell(name, "held-out", 5, n_shot) for name in EMBEDDINGS if name in data for n_shot in SHOTS]:
            if (time.monotonic() - start) / 60 < arguments.minutes:
                extend(results.setdefault(cell.name, {}), cell, data[cell.data], n_tasks)
                if cell.n_shot > 1:
                    extend_rivals(results[cell.name], cell, data[cell.data], n_tasks)
        write_atomically(arguments.out, json.dumps(results, indent=1).encode())
    results = {cell: sums for cell, sums in results.items() if sums}
    tables = {"conformal sets": set_table(results), "false alarms": alarm_table(results)}
    for name, table in tables.items():
        print(f"{name}\n\n{table}\n")
        if arguments.out == RESULTS:
            put_into_docs(name, table)


if __name__ == "__main__":
    main()
