"""What each choice of OneVsEachClassifier is worth, on held-out classes.

python -m benchmarks.estimator_choices [--match REGEX] [--episodes 20]

One table per choice (posterior, rule, scale, features, intercept, kernel, outlier score), with a row per task and a
column per alternative: log-loss, or AUROC. The embeddings are those of the held-out classes; the choices were made on
the design classes. Episodes are 3000 and up, while the benchmark uses 0 to 199. The only randomness is their own seeds.
Each table is written into docs/estimator-choices.md when it is complete.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.estimator import auroc
from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, Cell, Data, episodes, load_all
from polyshot.estimator import OneVsEachClassifier, covariance
from polyshot.estimator import fitted as fitted_model
from polyshot.estimator.hyperparameters import LEARNED
from polyshot.gp import Logits, OneVsEach, Rule, class_log_probs, sobol_normal

Array = NDArray[np.float64]
FIRST = 3000
LOG_SCALES = np.arange(0.0, 7.0)
TEMPERATURES = np.geomspace(0.25, 4.0, 17)
DRAWS = 512


class Task(NamedTuple):
    """Support, queries with labels and how often such a query comes, and queries of unseen classes."""

    X: Array
    y: NDArray[np.int64]
    queries: Array
    labels: NDArray[np.int64]
    weights: Array
    unseen: Array


class Skew(NamedTuple):
    """Shots of each class drawn, the label that it gets, and how often each label is asked about."""

    shots: tuple[int, ...]
    labels: tuple[int, ...]
    frequencies: tuple[float, ...]


SKEWED = {
    "one class against seven, 10 : 70": Skew((10,) * 8, (0,) + (1,) * 7, (1 / 8, 7 / 8)),
    "20 : 1": Skew((20, 1), (0, 1), (20 / 21, 1 / 21)),
    "20, 10, 5, 2, 1 shots, asked about evenly": Skew((20, 10, 5, 2, 1), (0, 1, 2, 3, 4), (0.2,) * 5),
}
# A task's loss under an alternative, or its losses under a family of which the table shows the best member.
Alternative = Callable[[Task], float | Array]


def balanced(cell: Cell, data: Data, n_episodes: int) -> Iterator[Task]:
    for e in episodes(cell, data, FIRST + n_episodes, FIRST):
        yield Task(e.X, e.y, e.queries, e.labels, np.full(len(e.labels), 1 / len(e.labels)), e.unseen)


def skewed(skew: Skew, data: Data, n_episodes: int, n_query: int = 10) -> Iterator[Task]:
    classes, sizes = np.unique(data.labels, return_counts=True)
    classes = classes[(classes % 2 == 1) & (sizes >= max(skew.shots) + n_query)]
    for k in range(FIRST, FIRST + n_episodes):
        generator = np.random.default_rng([len(data.X), k])
        drawn = generator.permutation(classes)[: len(skew.shots)]
        rows = [generator.permutation(np.flatnonzero(data.labels == c)) for c in drawn]
        support = np.concatenate([r[:n] for r, n in zip(rows, skew.shots, strict=True)])
        queries = np.concatenate([r[n : n + n_query] for r, n in zip(rows, skew.shots, strict=True)])
        labels = np.repeat(skew.labels, n_query)
        weights = (np.array(skew.frequencies) / np.bincount(labels))[labels]
        yield Task(data.X[support], np.repeat(skew.labels, skew.shots), data.X[queries], labels, weights, data.X[:0])


def noise(n_episodes: int) -> Iterator[Task]:
    """Five examples against 95 in 128 dimensions that say nothing."""
    y, labels = np.repeat([0, 1], [5, 95]), np.repeat([0, 1], [10, 190])
    for k in range(FIRST, FIRST + n_episodes):
        X = np.random.default_rng(k).standard_normal((300, 128))
        yield Task(X[:100], y, X[100:], labels, np.full(200, 1 / 200), X[:0])


def log_loss(task: Task, log_probs: Array) -> float:
    return float(-task.weights @ log_probs[np.arange(len(task.labels)), task.labels])


def fitted(**settings: Any) -> Alternative:
    """Log-loss of the classifier with these settings."""
    return lambda task: log_loss(
        task, OneVsEachClassifier(**settings).fit(task.X, task.y).predict_log_proba(task.queries)
    )


def within(changed: Callable[[], AbstractContextManager[Any]], **settings: Any) -> Alternative:
    """The same where a constant of the package is another."""

    def loss(task: Task) -> float | Array:
        with changed():
            return fitted(**settings)(task)

    return loss


def with_prior(**numbers: float) -> Alternative:
    return within(lambda: patch.object(fitted_model, "LEARNED", LEARNED._replace(**numbers)), kernel="cosine")


def with_intercept(v: float) -> Alternative:
    return within(lambda: patch.dict(covariance._INTERCEPTS, cosine=v), kernel="cosine")


def with_centre(examples: float) -> Alternative:
    return within(lambda: patch.object(covariance, "_EXAMPLES_TO_TRUST_A_MEAN", examples), kernel="cosine")


def without_roots(task: Task) -> float | Array:
    """Roots are taken where no feature is negative, so that a tiny shift prevents them."""
    return fitted(kernel="cosine")(task._replace(X=task.X - 1e-9, queries=task.queries - 1e-9))


def by_scale(task: Task, losses: Callable[[OneVsEachClassifier], Any]) -> Array:
    """Losses at every scale of the grid."""
    return np.array([losses(OneVsEachClassifier(log_scale=s).fit(task.X, task.y)) for s in LOG_SCALES])


def best_scale(task: Task) -> Array:
    return by_scale(task, lambda model: log_loss(task, model.predict_log_proba(task.queries)))


def best_temperature(task: Task) -> Array:
    def losses(model: OneVsEachClassifier) -> list[float]:
        logits = torch.from_numpy(model.predict_log_proba(task.queries))
        return [log_loss(task, torch.log_softmax(logits / t, -1).numpy()) for t in TEMPERATURES]

    return by_scale(task, losses)


def by_rule(rule: Rule) -> Alternative:
    """A rule that averages over the logits' Gaussian."""

    def loss(task: Task, model: OneVsEachClassifier) -> float:
        mean, spread = (torch.from_numpy(x)[None] for x in model.latent_mean_and_covariance(task.queries))
        draws = sobol_normal(0, torch.Size([1]), 1, DRAWS, mean.shape[-1], mean)[0]
        log_probs = class_log_probs(Logits(mean, spread), OneVsEach(), rule, noise=draws)
        return log_loss(task, log_probs[0].numpy())

    return lambda task: by_scale(task, lambda model: loss(task, model))


def most_evident(task: Task) -> float:
    """Empirical Bayes: the scale with the largest marginal likelihood."""
    models = [OneVsEachClassifier(log_scale=s).fit(task.X, task.y) for s in LOG_SCALES]
    best = max(models, key=lambda model: model.log_marginal_likelihood_)
    return log_loss(task, best.predict_log_proba(task.queries))


def outliers(score: Callable[[OneVsEachClassifier, Array], Array]) -> Alternative:
    """AUROC of a score for queries of unseen classes."""

    def area(task: Task) -> float:
        model = OneVsEachClassifier().fit(task.X, task.y)
        return auroc(score(model, task.queries), score(model, task.unseen))

    return area


def largest_logit(model: OneVsEachClassifier, X: Array) -> Array:
    return -model.decision_function(X).max(1)


def entropy(model: OneVsEachClassifier, X: Array) -> Array:
    log_probs = model.predict_log_proba(X)
    return -(np.exp(log_probs) * log_probs).sum(1)


def logit_variance(model: OneVsEachClassifier, X: Array) -> Array:
    return model.latent_mean_and_covariance(X)[1].trace(axis1=1, axis2=2)


def nearest_prototype(model: OneVsEachClassifier, X: Array) -> Array:
    support = model.fitted_.examples
    means = np.stack([support.X[support.labels == c].mean(0) for c in range(len(model.classes_))])
    return -((X @ means.T) / np.linalg.norm(X, axis=1, keepdims=True) / np.linalg.norm(means, axis=1)).max(1)


def nearest_example(model: OneVsEachClassifier, X: Array) -> Array:
    support = torch.from_numpy(model.fitted_.examples.X)
    return -model.fitted_.covariance(torch.from_numpy(X), support).amax(1).numpy()


FEW = [(5, 1), (5, 5), (5, 20)]
MORE = [*FEW, (20, 1), (20, 5)]
SIZES = {"embeddings": MORE, "embeddings, 5-way": FEW[:2], "unseen": MORE, "skewed": FEW, "all": FEW}
OTHERS = {"unseen": [("digits", 5)], "all": [("digits", 5), ("wine", 3), ("breast_cancer", 2)]}
SCORES = (
    OneVsEachClassifier.outlier_score, largest_logit, entropy, logit_variance, nearest_prototype, nearest_example,
)  # fmt: skip
TABLES: dict[str, tuple[str, dict[str, Alternative]]] = {
    "posterior": (
        "embeddings, 5-way",
        {name: fitted(inference=name, random_state=0) for name in ("propagation", "variational", "gibbs")},
    ),
    "rule": (
        "embeddings",
        {
            "softmax of means": best_scale,
            "with its best temperature": best_temperature,
            **{rule: by_rule(rule) for rule in ("log-sigmoid", "sigmoid", "monte-carlo")},
        },
    ),
    "scale": (
        "embeddings",
        {
            "chosen": fitted(),
            "prior alone": with_prior(deviation=1e-6),
            "leave-one-out alone": with_prior(deviation=1e3),
            "marginal likelihood": most_evident,
            "best fixed one": best_scale,
        },
    ),
    "features": (
        "embeddings",
        {
            "as it is": fitted(),
            "no roots": without_roots,
            "not centred": with_centre(np.inf),
            "centred in full": with_centre(0.0),
        },
    ),
    "intercept": ("skewed", {f"v = {v}": with_intercept(v) for v in (0.0, 0.3, 0.5, 1.0, 3.0)}),
    "kernel": (
        "all",
        {name: fitted(kernel=name) for name in ("auto", "cosine", "rbf", "normalized-rbf", "linear")},
    ),
    "outliers": ("unseen", {score.__name__.replace("_", " "): outliers(score) for score in SCORES}),
}


def rows(kind: str, data: dict[str, Data], n_episodes: int) -> Iterator[tuple[str, Iterator[Task]]]:
    """Tasks of a table, by name."""
    for name, n_way in OTHERS.get(kind, []):
        for n_shot in (1, 5, 20):
            cell = Cell(name, "all", n_way, n_shot)
            yield f"{name}/{n_way}-way/{n_shot}-shot", balanced(cell, data[name], n_episodes)
    if kind == "skewed":
        yield "noise, 5 : 95", noise(n_episodes)
    for name in EMBEDDINGS:
        for skew in SKEWED if kind == "skewed" else ():
            yield f"{name}, {skew}", skewed(SKEWED[skew], data[name], n_episodes)
        for n_way, n_shot in SIZES[kind]:
            cell = Cell(name, "held-out", n_way, n_shot)
            yield f"{name}/{n_way}-way/{n_shot}-shot", balanced(cell, data[name], n_episodes)


def table(kind: str, alternatives: dict[str, Alternative], data: dict[str, Data], n_episodes: int) -> str:
    lines = ["| task | " + " | ".join(alternatives) + " |", "|---" + "|---:" * len(alternatives) + "|"]
    for name, tasks in rows(kind, data, n_episodes):
        losses: dict[str, list[Any]] = {alternative: [] for alternative in alternatives}
        for task in tasks:
            for alternative, loss in alternatives.items():
                losses[alternative].append(loss(task))
        best = [float(np.mean(values, axis=0).min()) for values in losses.values()]
        lines.append(f"| {name} | " + " | ".join(f"{value:.4f}" for value in best) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help="only the tables whose name this regular expression finds")
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()
    data = load_all()
    if missing := [f"{name}.npz" for name in EMBEDDINGS if name not in data]:
        parser.error(f"{', '.join(missing)}: not in the folder that POLYSHOT_DATA names")
    for name, (kind, alternatives) in TABLES.items():
        if re.search(arguments.match, name):
            print(f"{name}, {arguments.episodes} episodes per row", flush=True)
            put_into_docs(name, table(kind, alternatives, data, arguments.episodes))


if __name__ == "__main__":
    main()
