"""polyshot beside other tools on the same tasks: python -m benchmarks.comparisons [--tasks 100]

5-way 5-shot tasks of the held-out classes of CLINC150 and CUB: episodes 0, 1, ... of the estimator's benchmark, which
are a function of their number. Every tool is used as its documentation shows it; no setting was chosen on these tasks.
Each gets the same 25 labelled vectors and 75 queries. Tools that are not installed are left out.
Writes benchmarks/results/comparisons.json and the tables of docs/comparisons.md. SetFit learns from sentences, so it is
in benchmarks.comparisons_setfit.
"""

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from benchmarks.estimator_rivals import gaussian_process, logistic_1, logistic_cv
from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, Cell, Episode, episodes, load_all
from polyshot import OneVsEachClassifier
from polyshot.evaluation import accuracy, expected_calibration_error, log_likelihood
from polyshot.system.files import write_atomically

RESULTS = Path("benchmarks/results/comparisons.json")
LEVEL = 0.9
FIT_SHARE = 15  # of 25 labels, where a tool needs others to calibrate


def polyshot_probabilities(task: Episode) -> np.ndarray:
    return OneVsEachClassifier().fit(task.X, task.y).predict_proba(task.queries)


def laplace_probabilities(task: Episode) -> np.ndarray:
    """The recipe of its documentation: mode, Kronecker factors, prior precision by marginal likelihood, probit link."""
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    fitted = LogisticRegression(C=1.0, max_iter=1000).fit(task.X, task.y)  # the posterior's mode at precision 1
    layer = torch.nn.Linear(*fitted.coef_.shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(fitted.coef_))
        layer.bias.copy_(torch.from_numpy(fitted.intercept_))
    examples = TensorDataset(torch.from_numpy(task.X).float(), torch.from_numpy(task.y))
    model = Laplace(layer, "classification", subset_of_weights="all", hessian_structure="kron")
    model.fit(DataLoader(examples, batch_size=len(examples)))
    model.optimize_prior_precision(method="marglik")
    probs: np.ndarray = model(torch.from_numpy(task.queries).float(), link_approx="probit").detach().numpy()
    return probs.astype(np.float64)


def polyshot_sets(task: Episode) -> np.ndarray:
    return OneVsEachClassifier().fit(task.X, task.y).predict_set(task.queries, LEVEL)


def mapie_split(task: Episode) -> np.ndarray:
    from mapie.classification import SplitConformalClassifier

    X, rest, y, labels = train_test_split(task.X, task.y, train_size=FIT_SHARE, stratify=task.y, random_state=0)
    model = SplitConformalClassifier(LogisticRegression(max_iter=1000), LEVEL, prefit=False, random_state=0)
    sets: np.ndarray = model.fit(X, y).conformalize(rest, labels).predict_set(task.queries)[1][:, :, 0]
    return sets


def mapie_cross(task: Episode) -> np.ndarray:
    from mapie.classification import CrossConformalClassifier

    model = CrossConformalClassifier(LogisticRegression(max_iter=1000), LEVEL, cv=5, random_state=0)
    sets: np.ndarray = model.fit_conformalize(task.X, task.y).predict_set(task.queries)[1][:, :, 0]
    return sets


def crepes_sets(task: Episode) -> np.ndarray:
    from crepes import WrapClassifier

    X, rest, y, labels = train_test_split(task.X, task.y, train_size=FIT_SHARE, stratify=task.y, random_state=0)
    model = WrapClassifier(LogisticRegression(max_iter=1000))
    model.fit(X, y)
    model.calibrate(rest, labels, seed=0)
    sets: np.ndarray = model.predict_set(task.queries, labels=False, confidence=LEVEL, seed=0)
    return sets.astype(bool)


class Tool(NamedTuple):
    """What it is called, the package it needs, and what it answers about the queries of a task."""

    title: str
    package: str
    answer: Callable[[Episode], np.ndarray]


PROBABILITIES = (
    Tool("polyshot `OneVsEachClassifier()`", "polyshot", polyshot_probabilities),
    Tool("scikit-learn `LogisticRegression()`", "sklearn", lambda t: logistic_1(t.X, t.y)(t.queries)[0]),
    Tool("scikit-learn `LogisticRegressionCV`", "sklearn", lambda t: logistic_cv(t.X, t.y)(t.queries)[0]),
    Tool("scikit-learn `GaussianProcessClassifier`", "sklearn", lambda t: gaussian_process(t.X, t.y)(t.queries)[0]),
    Tool("laplace-torch, linear layer", "laplace", laplace_probabilities),
)
SETS = (
    Tool("polyshot `predict_set`", "polyshot", polyshot_sets),
    Tool("MAPIE, cross-conformal, 5 folds", "mapie", mapie_cross),
    Tool("MAPIE, split (15 + 10 labels)", "mapie", mapie_split),
    Tool("crepes, split (15 + 10 labels)", "crepes", crepes_sets),
)


def measure_probabilities(probs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    return {
        "accuracy": accuracy(probs, labels),
        "log_loss": -log_likelihood(probs.clip(1e-12), labels),
        "ece": expected_calibration_error(probs, labels),
    }


def measure_sets(sets: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    covered, sizes = sets[np.arange(len(labels)), labels], sets.sum(1)
    return {
        "coverage": float(covered.mean()),
        "size": float(sizes.mean()),
        "single": float((sizes == 1).mean()),
        "empty": float((sizes == 0).mean()),
    }


def run(tool: Tool, tasks: list[Episode], measure: Callable[..., dict[str, float]]) -> dict[str, float]:
    """All figures of a tool, and the processor time of one task. The first task also warms the tool up."""
    tool.answer(tasks[0])
    start = time.process_time()
    answers = [tool.answer(task) for task in tasks]
    seconds = time.process_time() - start
    labels = np.concatenate([task.labels for task in tasks])
    figures = measure(np.concatenate(answers), labels) | {"ms": 1e3 * seconds / len(tasks)}
    return {name: round(value, 4) for name, value in figures.items()}


def table(kind: str, results: dict[str, Any], columns: dict[str, tuple[str, str]]) -> str:
    """One row per data set and tool; columns are key: (heading, format)."""
    lines = [
        f"| data | tool | {' | '.join(heading for heading, _ in columns.values())} |",
        "|---|---|" + "---:|" * len(columns),
    ]
    for data, by_kind in results.items():
        for title, figures in by_kind[kind].items():
            cells = (form.format(figures[key]).replace("%", " %") for key, (_, form) in columns.items())
            lines.append(f"| {data} | {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100)
    n_tasks = parser.parse_args().tasks
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results: dict[str, Any] = {}
    for name, data in load_all().items():
        if name not in EMBEDDINGS:
            continue
        tasks = list(episodes(Cell(name, "held-out", 5, 5), data, n_tasks))
        results[name] = {"tasks": n_tasks}
        for kind, tools, measure in (
            ("probabilities", PROBABILITIES, measure_probabilities),
            ("sets", SETS, measure_sets),
        ):
            results[name][kind] = {}
            for tool in tools:
                if importlib.util.find_spec(tool.package) is None:
                    print(f"left out: {tool.title}; {tool.package} is not installed")
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    figures = run(tool, tasks, measure)
                results[name][kind][tool.title] = figures
                print(name, tool.title, figures, flush=True)
    write_atomically(RESULTS, (json.dumps(results, indent=1) + "\n").encode())
    probabilities = {
        "accuracy": ("accuracy", "{:.1%}"), "log_loss": ("log-loss", "{:.3f}"), "ece": ("ECE", "{:.3f}"),
        "ms": ("ms per task", "{:.0f}"),
    }  # fmt: skip
    sets = {
        "coverage": ("coverage", "{:.1%}"), "size": ("mean size", "{:.2f}"), "single": ("one label", "{:.1%}"),
        "empty": ("empty", "{:.1%}"), "ms": ("ms per task", "{:.0f}"),
    }  # fmt: skip
    put_into_docs("probabilities", table("probabilities", results, probabilities))
    put_into_docs("sets", table("sets", results, sets))


if __name__ == "__main__":
    main()
