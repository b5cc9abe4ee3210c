"""Error against time: KL of the predictive to that of a long run, for every way to a posterior.

The yardstick is the predictive without independence assumption (rule "monte-carlo"); the long run is 200 chains of
200 steps, 40 of them left out, averaged over every fourth. Algorithm 1's rule is the last of 50 steps; how many chains
it needs for KL 0.002 follows from its three sizes, KL being inversely proportional to the number of chains.
"""

import time
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from polyshot.gp import (
    Cosine,
    OneVsEachGP,
    Sites,
    Start,
    fit_propagation,
    fit_variational,
    gibbs,
    predict,
    propagation_start,
    variational_start,
)

TARGET = 0.002
N_TASKS = 6

Task = tuple[Tensor, Tensor, Tensor, Tensor]


def make_task(seed: int, log_scale: float) -> Task:
    """K, y, K_star, k_star_star of a 5-way 5-shot task with 15 queries a class, within-class cosine 0.5."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(5, 64, generator=generator)
    x, q = (centres.repeat_interleave(n, 0) + torch.randn(5 * n, 64, generator=generator) for n in (5, 15))
    kernel = Cosine(log_scale)
    with torch.no_grad():
        return (
            kernel(x).double(),
            torch.arange(5).repeat_interleave(5),
            kernel(q, x).double(),
            kernel.diagonal(q).double(),
        )


def probabilities(task: Task, sites: Sites, seed: int) -> Tensor:
    K, y, K_star, k_star_star = task
    return predict(OneVsEachGP(), K, y, sites, K_star, k_star_star, rule="monte-carlo", seed=seed).log_probs


def chains(n_chains: int, n_steps: int, burn_in: int, start: Start) -> Callable[[Task, int], Sites]:
    def run(task: Task, seed: int) -> Sites:
        options = {"n_chains": n_chains, "n_steps": n_steps, "burn_in": burn_in, "start": start}
        return gibbs(OneVsEachGP(), task[0], task[1], 5, latent=False, seed=seed, **options).draws

    return run


def ways_to_a_posterior() -> dict[str, Callable[[Task, int], Sites]]:
    model = OneVsEachGP()
    return {
        "Algorithm 1, 20 chains": chains(20, 50, 49, "prior"),
        "Algorithm 1, 60 chains": chains(60, 50, 49, "prior"),
        "Algorithm 1, 180 chains": chains(180, 50, 49, "prior"),
        "variational": lambda task, _: fit_variational(model, task[0], task[1], 5, tolerance=1e-2).sites,
        "20 chains from variational, steps 1-10": chains(20, 10, 0, variational_start),
        "20 chains from variational, steps 11-20": chains(20, 20, 10, variational_start),
        "expectation propagation": lambda task, _: fit_propagation(model, task[0], task[1], 5, tolerance=1e-2).sites,
        "20 chains from propagation, steps 1-3": chains(20, 3, 0, propagation_start),
        "20 chains from propagation, steps 1-10": chains(20, 10, 0, propagation_start),
    }


def error_against_time(quick: bool) -> list[dict[str, object]]:
    """A row for every way and scale: seconds of posterior and predictive together, KL, time against Algorithm 1's."""
    rows = []
    for log_scale in (2.0, 4.0, 6.0):
        tasks = [make_task(seed, log_scale) for seed in range(2 if quick else N_TASKS)]
        long_run = chains(200, 200, 40, propagation_start)
        truth = [probabilities(task, _thinned(long_run(task, 1)), 1) for task in tasks]
        measured = {}
        for name, way in ways_to_a_posterior().items():
            seconds, divergences = [], []
            for repeat in range(2):
                for seed, (task, reference) in enumerate(zip(tasks, truth, strict=True)):
                    begin = time.perf_counter()
                    log_probs = probabilities(task, way(task, 100 * repeat + seed), 2 + repeat)
                    seconds.append(time.perf_counter() - begin)
                    divergences.append(float((reference.exp() * (reference - log_probs)).sum(-1).mean()))
            measured[name] = (float(np.median(seconds)), float(np.mean(divergences)))
        needed = _algorithm_1_time({20 * 3**k: measured[f"Algorithm 1, {20 * 3**k} chains"] for k in range(3)})
        rows += [
            {"scale": f"exp({log_scale:.0f})", "way": name, "ms": 1e3 * seconds, "KL": divergence}
            | {f"times sooner than Algorithm 1 at KL {TARGET}": needed / seconds if divergence <= TARGET else "-"}
            for name, (seconds, divergence) in measured.items()
        ]
    return rows


def _thinned(sites: Sites) -> Sites:
    """Every fourth draw: neighbours in a chain say nearly the same."""
    return Sites(sites.omega[..., ::4, :, :], sites.kappa[..., ::4, :, :])


def _algorithm_1_time(measured: dict[int, tuple[float, float]]) -> float:
    """Seconds that Algorithm 1 needs for the target, time and inverse KL being linear in the number of chains."""
    sizes = np.array(list(measured))
    seconds, divergence = np.array(list(measured.values())).T
    spread = float((divergence * sizes).mean())
    slope, offset = np.polyfit(sizes, seconds, 1)
    return float(offset + slope * max(spread / TARGET, 1.0))


def draw(rows: list[dict[str, object]], path: Path) -> None:
    """KL against time, a panel a scale, a marker a way."""
    scales = list(dict.fromkeys(row["scale"] for row in rows))
    ways = list(dict.fromkeys(row["way"] for row in rows))
    figure, panels = plt.subplots(1, len(scales), figsize=(13, 4.6), sharex=True, sharey=True, layout="constrained")
    for panel, scale in zip(panels, scales, strict=True):
        for k, way in enumerate(ways):
            row = next(row for row in rows if (row["scale"], row["way"]) == (scale, way))
            panel.loglog(row["ms"], row["KL"], "os^vD<>ph"[k], color=f"C{k}", markersize=9, label=way)
        panel.axhline(TARGET, color="grey", linewidth=0.8, linestyle="--")
        panel.set(title=f"kernel scale {scale}", xlabel="posterior and predictive, ms")
    panels[0].set_ylabel("KL of the predictive to a long run")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
