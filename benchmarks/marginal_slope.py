"""Where should the chains of L_ML start? Compares the slope in the kernel's log-scale with that of a long run.

    python -m benchmarks.marginal_slope [--tasks 8] [--out benchmarks/results/marginal_slope.json]

Synthetic tasks: 105 examples of 5 classes with 1,600 features. The classes differ less (5 % of a vector's squared
length) than the examples do in eight directions that carry no information about the class (50 %), as in photographs.
20 chains, as in training; slopes are per example.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from polyshot.gp import Cosine, OneVsEachGP, Start, marginal_likelihood, propagation_start, variational_start

N_WAY, N_EACH, N_FEATURES = 5, 21, 1600
SHARED, OF_CLASS, NUISANCE, N_DIRECTIONS = 0.36, 0.05, 0.5, 8  # shares of a vector's squared length
LOG_SCALES = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
WAYS: dict[str, tuple[Start, int]] = {
    "prior": ("prior", 1),
    "prior, 5 steps": ("prior", 5),
    "mean": ("mean", 1),
    "variational": (variational_start, 1),
    "propagation": (propagation_start, 1),
    "long run": (propagation_start, 50),
}


def make_tasks(n_tasks: int) -> tuple[Tensor, Tensor]:
    """Features [tasks, N, D] and labels [tasks, N]."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(N_WAY).repeat_interleave(N_EACH).expand(n_tasks, -1)

    def normal(*shape: int, share: float = 1.0) -> Tensor:
        return share**0.5 * torch.randn(n_tasks, *shape, generator=generator, dtype=torch.float64)

    n = y.shape[-1]
    x = normal(1, N_FEATURES, share=SHARED)
    x = x + normal(N_WAY, N_FEATURES, share=OF_CLASS).repeat_interleave(N_EACH, 1)
    x = x + normal(n, N_DIRECTIONS) @ normal(N_DIRECTIONS, N_FEATURES, share=NUISANCE / N_DIRECTIONS)
    return x + normal(n, N_FEATURES, share=1 - SHARED - OF_CLASS - NUISANCE), y


def slope(x: Tensor, y: Tensor, log_scale: float, start: Start, n_steps: int) -> float:
    """d L_ML / d log-scale, per example, averaged over the tasks."""
    kernel = Cosine(log_scale).double()
    value = marginal_likelihood(OneVsEachGP(), kernel, x, y, N_WAY, start=start, n_steps=n_steps, seed=0)
    (value.mean() / y.shape[-1]).backward()
    assert kernel.log_scale.grad is not None
    return kernel.log_scale.grad.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/marginal_slope.json"))
    arguments = parser.parse_args()
    x, y = make_tasks(arguments.tasks)
    rows = [
        {"log_scale": log_scale} | {name: slope(x, y, log_scale, *way) for name, way in WAYS.items()}
        for log_scale in LOG_SCALES
    ]
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:+.3f}" for value in row.values()))
    Console(width=120).print(table)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"tasks": arguments.tasks, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
