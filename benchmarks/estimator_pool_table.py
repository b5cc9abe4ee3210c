"""Sums over the episodes of a cell of estimator_pool.py, and the tables made of them."""

from typing import Any

import numpy as np

Sums = dict[str, Any]


def added(sums: Sums, found: dict[str, Any]) -> Sums:
    """The sums with those of one more episode; empty sums are a beginning."""
    more = {name: np.round(np.add(sums.get(name, 0.0), x), 6).tolist() for name, x in found.items()}
    return sums | more | {"episodes": sums.get("episodes", 0) + 1}


def ratio(sums: Sums) -> tuple[float, float]:
    """Log-loss with the pool relative to none, and its standard error."""
    r = sums["pool"] / sums["no pool"]
    (alone, both), (_, pool) = sums["products"]
    return r, float(np.sqrt(max(0.0, pool - 2 * r * both + r**2 * alone))) / sums["no pool"]


def calibration_errors(sums: Sums, name: str) -> tuple[float, float]:
    """ECE over all queries, and what a calibrated classifier with the same probabilities would have by chance."""
    gaps, variances = np.array(sums[f"{name}, gaps"]) / sums["episodes"]
    by_chance = np.sqrt(2 / np.pi * variances / sums["queries"]).sum()
    return float(np.abs(gaps).sum()), float(by_chance)


def table(results: dict[str, Sums], rivals: list[str]) -> str:
    """One row per cell; the rivals, and ours beside them, on the first episodes."""
    head = [
        "no pool",
        "pool",
        "pool, first",
        *rivals,
        "pool, transductive",
        "ECE",
        "ECE, no pool",
        "ECE by chance",
    ]
    lines = ["| cell | episodes | " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) + 1)]
    for name, sums in results.items():
        ours, error = ratio(sums)
        (ece, by_chance), (alone, _) = (calibration_errors(sums, kind) for kind in ("pool", "no pool"))
        numbers = [f"{sums['no pool'] / sums['episodes']:.4f}", f"{ours:.2f} ± {error:.2f}"]
        numbers += [f"{sums[method] / sums['no pool, first']:.2f}" for method in ("pool, first", *rivals)]
        numbers.append(f"{sums['pool, transductive'] / sums['no pool, transductive']:.2f}")
        numbers += [f"{x:.3f}" for x in (ece, alone, by_chance)]
        lines.append(f"| {name.replace('/held-out', '')} | {sums['episodes']} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


def summary(groups: dict[str, list[tuple[int, Sums]]]) -> str:
    """Means over the cells of each group, which come with their number of ways, and the largest of them."""
    head = ["mean, 5-way", "mean, 20-way", "mean", "largest", "largest ECE", "largest ECE, no pool"]
    lines = [f"| cells | {' | '.join(head)} |", "|---|" + "---:|" * len(head)]
    for title, members in groups.items():
        if members:
            ratios = np.array([ratio(sums)[0] for _, sums in members])
            n_way = np.array([n for n, _ in members])
            numbers = [ratios[n_way == 5].mean(), ratios[n_way == 20].mean(), ratios.mean(), ratios.max()]
            errors = [max(calibration_errors(sums, kind)[0] for _, sums in members) for kind in ("pool", "no pool")]
            shown = [f"{x:.2f}" for x in numbers] + [f"{x:.3f}" for x in errors]
            lines.append(f"| {title} | {' | '.join(shown)} |")
    return "\n".join(lines)
