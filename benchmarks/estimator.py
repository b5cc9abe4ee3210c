"""OneVsEachClassifier against what people use today, on identical episodes: `make bench-estimator`.

python -m benchmarks.estimator [--episodes 200] [--match REGEX] [--seconds 60] [--out estimator.json]

One entry a cell and method in the JSON, written after each, so that a run can be stopped and taken up again. A method
that needs longer than --seconds for an episode of a cell gets fewer episodes there; the JSON says how many.
"""

import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.estimator_rivals import RIVALS, Impossible, Predictor
from benchmarks.estimator_table import write_table
from benchmarks.estimator_tasks import Cell, Episode, cells, episodes, load_all
from benchmarks.predictive_rules import calibration_error
from polyshot.estimator import OneVsEachClassifier

OURS = "OneVsEachClassifier"


def one_vs_each(X: np.ndarray, y: np.ndarray) -> Predictor:
    model = OneVsEachClassifier().fit(X, y)
    return lambda queries: (model.predict_proba(queries), {"outlier score": model.outlier_score(queries)})


METHODS = {OURS: one_vs_each} | RIVALS


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    truth = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
    return float(roc_auc_score(truth, np.nan_to_num(np.r_[inside, outside])))


def measure(cell: Cell, tasks: list[Episode], method: str, seconds: float) -> dict[str, Any]:
    """All numbers of one method in one cell; `tasks` are used up to the time that `seconds` an episode allow."""
    probs, truth, fit_times, predict_times = [], [], [], []
    scores: dict[str, dict[str, list[float]]] = {"unseen": {}, "out_of_scope": {}}
    began = time.perf_counter()
    for done, task in enumerate(tasks):
        if done >= 5 and time.perf_counter() - began > seconds * len(tasks):
            break
        try:
            start = time.perf_counter()
            predict = METHODS[method](task.X, task.y)
            middle = time.perf_counter()
            p, inside = predict(task.queries)
            end = time.perf_counter()
        except (Impossible, ValueError) as reason:
            return {"impossible": str(reason) or "cross-validation needs two examples a class"}
        probs.append(p)
        truth.append(task.labels)
        fit_times.append(middle - start)
        predict_times.append(end - middle)
        for kind, queries in (("unseen", task.unseen), ("out_of_scope", task.out_of_scope)):
            if len(queries):
                for name, outside in predict(queries)[1].items():
                    scores[kind].setdefault(name, []).append(auroc(inside[name], outside))
    p, t = np.concatenate(probs), np.concatenate(truth)
    row: dict[str, Any] = {
        "episodes": len(probs),
        "log_loss": float(-np.log(p[np.arange(len(t)), t].clip(1e-12)).mean()),
        "accuracy": float((p.argmax(1) == t).mean()),
        "Brier": float(((p - np.eye(cell.n_way)[t]) ** 2).sum(1).mean()),
        "ECE": calibration_error(p, t),
        "fit_seconds": float(np.median(fit_times)),
        "predict_seconds": float(np.median(predict_times)),
    }
    for kind, by_name in scores.items():
        row |= {f"AUROC_{kind}": {name: float(np.mean(values)) for name, values in by_name.items()}}
    return row


def save(path: Path, results: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(part, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--match", default="", help="only the cells whose name this regular expression finds")
    parser.add_argument("--methods", default="", help="only the methods whose name this regular expression finds")
    parser.add_argument("--seconds", type=float, default=60.0, help="longest time an episode before there are fewer")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/estimator.json"))
    arguments = parser.parse_args()
    data = load_all()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    results.setdefault("threads", torch.get_num_threads())
    for cell in cells(data):
        if not re.search(arguments.match, cell.name):
            continue
        done = results.setdefault("cells", {}).setdefault(cell.name, {})
        wanted = [
            method
            for method in METHODS
            if re.search(arguments.methods, method) and done.get(method, {}).get("wanted", 0) < arguments.episodes
        ]
        tasks = list(episodes(cell, data[cell.data], arguments.episodes)) if wanted else []
        for method in wanted:
            done[method] = measure(cell, tasks, method, arguments.seconds) | {"wanted": arguments.episodes}
            save(arguments.out, results)
            print(cell.name, method, {k: v for k, v in done[method].items() if "AUROC" not in k}, flush=True)
    write_table(results, arguments.out.with_suffix(".md"))


if __name__ == "__main__":
    main()
