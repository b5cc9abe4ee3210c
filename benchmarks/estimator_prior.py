"""Learns the numbers of `polyshot.estimator.hyperparameters.LEARNED`: python -m benchmarks.estimator_prior

Tasks are the episodes 1000, 1001, ... of the design half of the two embedding sets, in all cells of the benchmark,
with fewer episodes in large cells. The benchmark itself uses episodes 0 to 199. For each task the log-loss of the
queries and the leave-one-out likelihood of the support set are computed on a grid of scales. The chosen prior minimises
the mean over cells of log(log-loss / log-loss of the cell's best fixed scale). The only randomness is the episodes' own
seeds. --by-scatter 0 gives WITHOUT_SCATTER; --learn-on gives the first table of docs/estimator-lab-notes.md. --check
compares the prior that was learned with the one in use on held-out classes, and on 5-way tasks of two further text
sets, by the encoder "wordllama"; that is the second table.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize

from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import EMBEDDINGS, Cell, Data, cells, episodes, load_all
from polyshot.encoders import TextEncoder
from polyshot.estimator.covariance import Covariance
from polyshot.estimator.hyperparameters import LEARNED, ScalePrior, scatter
from polyshot.gp import fit_tied_propagation, leave_one_out_likelihood

Tasks = dict[Cell, tuple[np.ndarray, np.ndarray]]  # curves and scatters

GRID = np.arange(0.5, 7.1, 0.5)
FINE = np.linspace(GRID[0], GRID[-1], 261)
FIRST = 1000
TEXTS = ("stackoverflow_text", "trec_text")
FLOOR = 0.02  # without it, a few episodes without errors, whose best scale is infinite, would decide


def curves(cell: Cell, data: Data, n_episodes: int) -> np.ndarray:
    """[episodes, 2, FINE]: log-loss of the queries and leave-one-out likelihood of the support, by scale."""
    result = []
    for task in episodes(cell, data, FIRST + n_episodes, FIRST):
        X, queries, y = (torch.from_numpy(x) for x in (task.X, task.queries, task.y))
        covariance = Covariance.of("cosine", X)
        K, K_star, rows, start = covariance(X, X), covariance(queries, X), np.arange(len(task.labels)), None
        level = covariance.intercept
        points = []
        for log_scale in GRID[::-1]:
            scaled = np.exp(log_scale) * K + level
            if cell.n_shot > 1:
                likelihood, fit = leave_one_out_likelihood(scaled, y, cell.n_way, start=start)
            else:
                likelihood, fit = 0.0, fit_tied_propagation(scaled, y, cell.n_way, tolerance=3e-2, start=start)[0]
            start = fit.w, fit.kappa
            _, posterior = fit_tied_propagation(scaled, y, cell.n_way, tolerance=1e-2, max_sweeps=25, start=start)
            log_probs = torch.log_softmax((np.exp(log_scale) * K_star + level) @ posterior.a, -1).numpy()
            points.append((-log_probs[rows, task.labels].mean(), likelihood))
        result.append(CubicSpline(GRID, np.array(points)[::-1])(FINE).T)
    return np.array(result)


def scatters(cell: Cell, data: Data, n_episodes: int) -> np.ndarray:
    """The scatter of each episode's support."""
    supports = ((torch.from_numpy(t.X), torch.from_numpy(t.y)) for t in episodes(cell, data, FIRST + n_episodes, FIRST))
    return np.array([scatter(Covariance.of("cosine", X)(X, X), y, torch.ones(len(X)).double()) for X, y in supports])


def regret(prior: ScalePrior, tasks: Tasks) -> float:
    """Mean over cells of log(log-loss of the prior's choices / that of the best fixed scale), FLOOR added to both."""
    chosen, fixed = np.array([(loss_of(prior, cell, c, s), c[:, 0].mean(0).min()) for cell, (c, s) in tasks.items()]).T
    return float(np.log((chosen + FLOOR) / (fixed + FLOOR)).mean())


def loss_of(prior: ScalePrior, cell: Cell, curve: np.ndarray, scatters: np.ndarray) -> float:
    """Mean log-loss in a cell with the scales that this prior chooses."""
    weight = (1 - 1 / cell.n_shot) ** prior.power if cell.n_shot > 1 else 0.0
    means = np.array([prior.at(cell.n_way * cell.n_shot, cell.n_way, s) for s in scatters])
    distance = (FINE - means[:, None]) / prior.deviation
    chosen = (weight * curve[:, 1] - distance**2 / 2).argmax(-1)
    return float(curve[np.arange(len(curve)), 0, chosen].mean())


def learn(tasks: Tasks, by_scatter: float) -> ScalePrior:
    """The prior with the smallest regret, its numbers rounded."""
    # begin where the best fixed scales of the cells lie
    start = np.array([5.5, 0.6, 0.4, 0.5, 3.0])
    bounds = [(0, 9), (0, 2), (0, 2), (0.1, 2), (0, 6)]
    simplex = start + np.vstack([np.zeros(5), np.diag([0.5, 0.2, 0.2, 0.3, 1.0])])
    best = minimize(
        lambda numbers: regret(ScalePrior(*numbers, by_scatter), tasks),
        start,
        method="Nelder-Mead",
        bounds=bounds,
        options={"initial_simplex": simplex},
    )
    return ScalePrior(*(round(float(x), 2) for x in best.x), by_scatter)


def text_sets() -> dict[str, Data]:
    """Embeddings of the text sets of $POLYSHOT_DATA, whose classes play no other part in the classifier's choices."""
    sets = {}
    for name in TEXTS:
        with np.load(Path(os.environ.get("POLYSHOT_DATA", ".")) / f"{name}.npz") as file:
            X = TextEncoder("wordllama").fit_transform(file["texts"].tolist()).astype(np.float64)
            sets[name] = Data(X, file["labels"].astype(np.int64), X[:0], scale=False)
    return sets


def check(of: dict[str, Tasks], learned: ScalePrior) -> str:
    """Regret of the prior in use and of the one learned, and the ratio of log-losses, for each part of the tasks."""
    lines = ["| tasks | cells | regret, in use | regret, learned again | log-loss |", "|---|---:|---:|---:|---:|"]
    for name, tasks in of.items():
        old, new = regret(LEARNED, tasks), regret(learned, tasks)
        lines.append(f"| {name} | {len(tasks)} | {old:.2%} | {new:.2%} | {np.exp(new - old):.4f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1000, help="support examples a cell, which sets its episodes")
    parser.add_argument("--by-scatter", type=float, default=1.0, help="coefficient of the logarithm of the scatter")
    parser.add_argument("--learn-on", choices=EMBEDDINGS, help="this data set alone; without it, both")
    parser.add_argument("--check", action="store_true", help="compare with the prior in use on other tasks")
    parser.add_argument("--cache", type=Path, help="an .npz to keep the curves in")
    arguments = parser.parse_args()
    data = load_all()
    known = dict(np.load(arguments.cache)) if arguments.cache and arguments.cache.is_file() else {}
    wanted = [cell for cell in cells(data) if cell.half == "design" or (cell.half == "held-out" and arguments.check)]
    if arguments.check:
        data |= text_sets()
        wanted += [Cell(name, "all", 5, n_shot) for name in TEXTS for n_shot in (1, 2, 5, 10)]
    everything: Tasks = {}
    for cell in wanted:
        if cell.name not in known:
            size = cell.n_way * cell.n_shot
            known[cell.name] = curves(cell, data[cell.data], int(np.clip(arguments.examples // size, 1, 40)))
            if arguments.cache:
                np.savez(arguments.cache, **known)
        everything[cell] = known[cell.name], scatters(cell, data[cell.data], len(known[cell.name]))
    tasks = {cell: task for cell, task in everything.items() if cell.half == "design"}
    of = {name: {cell: task for cell, task in tasks.items() if cell.data == name} for name in EMBEDDINGS}
    prior = learn(of[arguments.learn_on] if arguments.learn_on else tasks, arguments.by_scatter)
    for cell, (curve, each) in tasks.items():
        fixed = curve[:, 0].mean(0)
        middle = prior.at(cell.n_way * cell.n_shot, cell.n_way, float(np.median(each)))
        print(
            f"{cell.name}: {len(curve)} episodes, best fixed scale {FINE[fixed.argmin()]:.2f} with log-loss "
            f"{fixed.min():.4f}; prior {middle:.2f}, chosen {loss_of(prior, cell, curve, each):.4f}"
        )
    parts = ", ".join(f"on {name} {regret(prior, part):.4f}" for name, part in of.items() if part)
    print(prior, f"regret {regret(prior, tasks):.4f}, {parts}")
    if arguments.check:
        held_out = {cell: task for cell, task in everything.items() if cell.half == "held-out"}
        groups = {"design halves": tasks, "held-out halves": held_out}
        for name in (*EMBEDDINGS, *TEXTS):
            groups[name] = {c: task for c, task in everything.items() if c.data == name and c.half != "design"}
        put_into_docs("prior", check(groups, prior))


if __name__ == "__main__":
    main()
