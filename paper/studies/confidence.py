"""How confident is each likelihood a priori? The largest class probability when f ~ N(0, 1) (Section 5.1.1)."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import gaussian_kde

from paper.studies.compared import COLOURS, STUDIED, TITLES
from paper.studies.output import Row, new_figure, save_figure, table, write_json, write_rows, write_text
from polyshot.errors import InputError

_BINS = np.linspace(0, 1, 51)


def draw_confidences(n_draws: int = 50_000, n_way: int = 5, seed: int = 0) -> dict[str, Float[np.ndarray, " s"]]:
    """Return max_c p(y = c | f) under each likelihood, for the same S draws of f_c ~ N(0, 1)."""
    if n_draws < 100 or n_way < 2:
        raise InputError(f"need at least 100 draws and 2 classes, not {n_draws} and {n_way}")
    f = torch.from_numpy(np.random.default_rng(seed).standard_normal((n_draws, n_way)))
    return {name: make().log_probs(f).amax(-1).exp().numpy() for name, make in STUDIED.items()}


def summarise_confidences(confidences: dict[str, Float[np.ndarray, " s"]]) -> list[Row]:
    """Mean, median and the share of draws above some confidences; one row per likelihood."""
    return [
        {
            "likelihood": name,
            "mean": float(c.mean()),
            "median": float(np.median(c)),
            **{f"share above {t}": float((c > t).mean()) for t in (0.4, 0.6, 0.8, 0.9)},
        }
        for name, c in confidences.items()
    ]


def confidence_figure(out: Path, n_draws: int = 50_000, n_way: int = 5, seed: int = 0) -> list[Path]:
    """Write the histograms and densities into `out`, with their numbers and a summary in words."""
    confidences = draw_confidences(n_draws, n_way, seed)
    summary = summarise_confidences(confidences)
    at = np.linspace(1 / n_way, 1, 401)
    densities = {name: _density(c, at, 1 / n_way) for name, c in confidences.items()}
    figure, axes = new_figure(1, 1, (7.0, 4.0))
    for name, c in confidences.items():
        axes[0].hist(c, _BINS.tolist(), density=True, color=COLOURS[name], alpha=0.22)
        axes[0].plot(at, densities[name], color=COLOURS[name], label=TITLES[name])
    axes[0].axvline(1 / n_way, color="grey", linewidth=0.8, linestyle=":")
    axes[0].set(
        xlim=(0, 1),
        xlabel=r"confidence $\max_c p(y=c \mid \mathbf{f})$",
        ylabel="density",
        title=f"{n_draws:,} draws of $f_c \\sim N(0, 1)$, C = {n_way}; dotted: 1 / C",
    )
    axes[0].legend(frameon=False)
    histogram = [
        {"from": float(low), "to": float(high), **{name: int(k) for name, k in zip(confidences, counts, strict=True)}}
        for low, high, *counts in zip(
            _BINS[:-1], _BINS[1:], *(np.histogram(c, _BINS)[0] for c in confidences.values()), strict=True
        )
    ]
    settings = {"n_draws": n_draws, "n_way": n_way, "seed": seed}
    density = [
        {"confidence": float(x), **{k: float(d[i]) for k, d in densities.items()}} for i, x in enumerate(at.tolist())
    ]
    text = f"# Confidence a priori\n\n{_words(summary, n_draws, n_way)}\n\n{table(summary)}\n"
    return [
        *save_figure(figure, out / "confidence"),
        write_rows(out / "confidence.csv", histogram),
        write_rows(out / "confidence_density.csv", density),
        write_json(out / "confidence.json", {"settings": settings, "summary": summary}),
        write_text(out / "confidence.md", text),
    ]


def _density(c: Float[np.ndarray, " s"], at: Float[np.ndarray, " k"], lowest: float) -> Float[np.ndarray, " k"]:
    """Kernel density on [lowest, 1]; mass that falls outside is reflected back inside."""
    kernel = gaussian_kde(c)
    density: Float[np.ndarray, " k"] = kernel(at) + kernel(2 * lowest - at) + kernel(2 - at)
    return density


def _words(summary: list[Row], n_draws: int, n_way: int) -> str:
    by_name = {row["likelihood"]: row for row in summary}
    softmax = by_name["softmax"]
    lines = [
        f"{n_draws:,} draws of f ~ N(0, 1) with {n_way} classes. Under softmax the mean confidence is "
        f"{softmax['mean']:.3f}, and {softmax['share above 0.8']:.1%} of the draws are above 0.8."
    ]
    for name in ("gaussian", "logistic-softmax", "one-vs-each"):
        row = by_name[name]
        side = "more" if row["mean"] > softmax["mean"] else "less"
        lines.append(
            f"- {TITLES[name]} is {side} confident than softmax: mean {row['mean']:.3f}; "
            f"{row['share above 0.4']:.1%} of the draws above 0.4, {row['share above 0.8']:.1%} above 0.8."
        )
    return "\n".join(lines)
