"""`make demo`: classify a few points in the plane by the one-vs-each GP and show how sure it is.

python -m polyshot.demo [figure.png]
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Table
from torch import Tensor

from polyshot.gp import RBF, Kernel, OneVsEachGP, Sites, gibbs, predict, split_r_hat

CLASSES = ("red", "green", "blue")
QUERIES = {
    "among the red": (-1.6, 0.0),
    "among the blue": (0.0, 1.7),
    "between red and green": (0.0, -0.6),
    "in the middle of all": (0.0, 0.3),
    "far from everything": (6.0, -6.0),
}


def make_support(seed: int = 0) -> tuple[Float[Tensor, "n 2"], Int[Tensor, "n"]]:
    """Three classes of five labelled points each."""
    centres = np.array([[-1.5, -0.5], [1.5, -0.5], [0.0, 1.5]])
    points = np.repeat(centres, 5, axis=0) + 0.5 * np.random.default_rng(seed).standard_normal((15, 2))
    return torch.from_numpy(points), torch.arange(3).repeat_interleave(5)


def classify(
    model: OneVsEachGP,
    kernel: Kernel,
    x: Float[Tensor, "n 2"],
    y: Int[Tensor, "n"],
    sites: Sites,
    queries: Float[Tensor, "q 2"],
) -> Float[Tensor, "q c"]:
    """Class probabilities of the queries, averaged over the draws of the chains."""
    prediction = predict(
        model, kernel(x), y, sites, kernel(queries, x), kernel.diagonal(queries), rule="monte-carlo", seed=0
    )
    return prediction.log_probs.exp()


@torch.no_grad()
def main(figure: Path = Path("demo.png")) -> None:
    """Sample the posterior, print a table of queries, draw the map of confidence."""
    console = Console()
    x, y = make_support()
    kernel, model = RBF(log_scale=2.0).double(), OneVsEachGP()
    chain = gibbs(model, kernel(x), y, 3, n_chains=20, n_steps=200, burn_in=40, thin=4, seed=0)
    draws = Sites(*(part[::4] for part in chain.draws))
    assert chain.f is not None
    console.print(
        "One-vs-each Pólya-Gamma GP: 3 classes, 5 labelled points each; 20 Gibbs chains of 200 steps, "
        f"largest split R-hat {split_r_hat(chain.f).max():.3f}."
    )
    probabilities = classify(model, kernel, x, y, draws, torch.tensor(list(QUERIES.values())).double())
    table = Table("query", "point", *CLASSES, "answer")
    for (name, point), p in zip(QUERIES.items(), probabilities, strict=True):
        answer = CLASSES[int(p.argmax())] if p.max() > 0.5 else "not sure"
        table.add_row(name, str(point), *(f"{value:.2f}" for value in p.tolist()), answer)
    console.print(table)
    draw_map(figure, x, y, lambda queries: classify(model, kernel, x, y, draws, queries))
    console.print(f"Far from what it has seen it says so: every class near 1/3. Map of confidence: {figure}")


def draw_map(figure: Path, x: Tensor, y: Tensor, probabilities_of: Callable[[Tensor], Tensor]) -> None:
    """The most probable class by hue and its probability by depth, over the plane."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    side = torch.linspace(-6, 6, 61, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    p = probabilities_of(grid).reshape(61, 61, 3).transpose(0, 1).numpy()
    hues = np.array([[0.84, 0.15, 0.16], [0.17, 0.63, 0.17], [0.12, 0.47, 0.71]])
    depth = (p.max(-1, keepdims=True) - 1 / 3) * 1.5
    fig, axes = plt.subplots(figsize=(6, 5.4), layout="constrained")
    axes.imshow(1 - depth * (1 - hues[p.argmax(-1)]), extent=(-6, 6, -6, 6), origin="lower", interpolation="bilinear")
    lines = axes.contour(side, side, p.max(-1), levels=[0.5, 0.7, 0.9], colors="black", linewidths=0.7)
    axes.clabel(lines, fmt="%.1f", fontsize=8)
    for c, name in enumerate(CLASSES):
        points = x[y == c]
        axes.scatter(points[:, 0], points[:, 1], color=hues[c], edgecolor="white", s=50, label=name)
    axes.set(title="One-vs-each GP: class by hue, its probability by depth", xlabel="$x_1$", ylabel="$x_2$")
    axes.legend(loc="lower left")
    fig.savefig(figure, dpi=120)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
