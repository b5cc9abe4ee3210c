"""Draw the pictures of docs/polya-gamma/index.md from the results of the page's own code.

python docs/polya-gamma/pictures.py
"""

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

HERE = Path(__file__).parent
FIGURES = HERE.parent / "figures"


def run_page() -> dict[str, Any]:
    """The names that the code blocks of the page define."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", (HERE / "index.md").read_text("utf-8"), re.DOTALL):
        exec(code, names)
    return names


def sigmoid(n: dict[str, Any]) -> Figure:
    """Step 1."""
    figure, axes = plt.subplots(figsize=(5, 2.8))
    axes.plot(n["psi"], n["prior"] / torch.trapezoid(n["prior"], n["psi"]), "--", label="prior")
    axes.plot(n["psi"], torch.sigmoid(n["psi"]) / 4, ":", label="sigmoid / 4")
    axes.plot(n["psi"], n["exact"], label="posterior")
    axes.set_xlabel("$\\psi$")
    axes.legend()
    return figure


def identity(n: dict[str, Any]) -> Figure:
    """Step 2."""
    figure, axes = plt.subplots(figsize=(5, 2.8))
    psi = n["psi"]
    for omega in n["omega"][:8]:
        axes.plot(psi, 0.5 * torch.exp(psi / 2 - omega * psi**2 / 2), color="0.75", lw=1)
    axes.plot(psi, torch.sigmoid(psi), label="sigmoid")
    axes.plot(n["points"], n["average"], "o", ms=4, label="average over 20,000 draws")
    axes.set(xlabel="$\\psi$", ylim=(0, 1.6), xlim=(-4.5, 4.5))
    axes.legend()
    return figure


def gibbs_steps(n: dict[str, Any]) -> Figure:
    """Step 3."""
    figure, panels = plt.subplots(1, 4, figsize=(9, 2.4), sharey=True)
    psi = n["psi"]
    for k, axes in enumerate(panels[:3]):
        omega, precision, values = n["steps"][k]
        curve = (precision / (2 * torch.pi)).sqrt() * torch.exp(-precision * (psi - 0.5 / precision) ** 2 / 2)
        axes.plot(psi, curve)
        axes.axvline(values[0], color="C1")
        axes.set(title=f"step {k + 1}: $\\omega$ = {omega:.2f}", xlabel="$\\psi$")
    panels[3].hist(n["value"].numpy(), 30, density=True, color="0.8")
    panels[3].plot(psi, n["exact"])
    panels[3].set(title="all chains, step 20", xlabel="$\\psi$", xlim=(-6, 6))
    return figure


def three_classes(n: dict[str, Any]) -> Figure:
    """Step 4."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True)
    line, side = n["line"], len(n["line"])
    for c, axes in enumerate(panels):
        image = n["probabilities"][:, c].reshape(side, side).T
        shown = axes.pcolormesh(line, line, image, vmin=0, vmax=1, cmap="Blues", rasterized=True)
        for k, marker in enumerate("os^"):
            rows = n["x"][n["y"] == k]
            axes.plot(rows[:, 0], rows[:, 1], marker, color="C1" if k == c else "0.4", ms=5)
        axes.set(title=f"p(class {c})", aspect="equal")
    figure.colorbar(shown, ax=panels, shrink=0.8)
    return figure


def propagation(n: dict[str, Any]) -> Figure:
    """Step 5."""
    figure, axes = plt.subplots(figsize=(3.4, 3.2))
    axes.plot([0, 1], [0, 1], color="0.7")
    axes.plot(n["by_gibbs"].flatten(), n["by_propagation"].flatten(), "o", ms=3)
    axes.set(xlabel="Gibbs sampling", ylabel="expectation propagation", aspect="equal")
    return figure


def scale(n: dict[str, Any]) -> Figure:
    """Step 6."""
    figure, axes = plt.subplots(figsize=(5, 2.8))
    axes.plot(n["log_scales"], n["confidence"], "o-")
    axes.axhline(1 / 3, color="0.7", ls=":")
    axes.set(xlabel="log-scale $\\alpha$", ylabel="mean confidence", ylim=(0.3, 1))
    return figure


def episode(n: dict[str, Any]) -> Figure:
    """Step 7."""
    figure, panels = plt.subplots(1, 3, figsize=(8, 2.6), sharey=True)
    for axes, title, mean, std in zip(
        panels, ("typical of class 0", "between the classes", "far away"), n["logit_mean"], n["logit_std"], strict=True
    ):
        axes.errorbar(range(3), mean, std, fmt="o", capsize=4)
        axes.axhline(0, color="0.8")
        axes.set(title=title, xlabel="class", xticks=range(3))
    panels[0].set_ylabel("logit")
    return figure


DRAWN = {
    "pg-1-sigmoid": sigmoid,
    "pg-2-identity": identity,
    "pg-3-gibbs": gibbs_steps,
    "pg-4-one-vs-each": three_classes,
    "pg-5-propagation": propagation,
    "pg-6-scale": scale,
    "pg-7-episode": episode,
}

if __name__ == "__main__":
    names = run_page()
    for name, draw in DRAWN.items():
        figure = draw(names)
        figure.savefig(FIGURES / f"{name}.png", dpi=90, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)
