"""Four likelihoods and their posteriors for three classes, one example of class 1 and f3 = 0 (Section 5.1.2)."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes

from paper.studies.compared import STUDIED, TITLES
from paper.studies.output import Row, new_figure, save_figure, table, write_json, write_rows, write_text
from polyshot.errors import InputError
from polyshot.gp import Gaussian

_WIDEST = 8.0  # the quadrature covers this many standard deviations of the prior


class Surface(NamedTuple):
    """log L(f | y = 1) and the normalised posterior density on the grid f1 = side (rows), f2 = side (columns)."""

    side: Float[np.ndarray, " k"]
    log_likelihood: Float[np.ndarray, "k k"]
    posterior: Float[np.ndarray, "k k"]
    log_evidence: float


def likelihood_surfaces(n_points: int = 401) -> dict[str, Surface]:
    """Evaluate each likelihood and posterior on n_points^2 points; sums over them are exact nearly to rounding."""
    if n_points < 41:
        raise InputError(f"the quadrature needs n_points >= 41, not {n_points}")
    side = np.linspace(-_WIDEST, _WIDEST, n_points)
    f1, f2 = np.meshgrid(side, side, indexing="ij")
    f = torch.from_numpy(np.stack([f1, f2, np.zeros_like(f1)], -1))
    log_prior = -(f1**2 + f2**2) / 2 - np.log(2 * np.pi)
    surfaces = {}
    for name, make in STUDIED.items():
        log_likelihood = make().log_all(f)[..., 0].numpy()
        joint = np.exp(log_likelihood + log_prior)
        evidence = joint.sum() * (side[1] - side[0]) ** 2
        surfaces[name] = Surface(side, log_likelihood, joint / evidence, float(np.log(evidence)))
    return surfaces


def summarise_surfaces(surfaces: dict[str, Surface]) -> list[Row]:
    """Mode, mean and spread of each posterior, and its KL divergence to softmax's; one row per likelihood."""
    rows: list[Row] = []
    target = surfaces["softmax"].posterior
    for name, (side, log_likelihood, p, log_evidence) in surfaces.items():
        cell = (side[1] - side[0]) ** 2
        mean = np.array([(p.sum(1) @ side) * cell, (p.sum(0) @ side) * cell])
        centred = side[:, None] - mean
        covariance = (
            np.array(
                [
                    [p.sum(1) @ centred[:, 0] ** 2, centred[:, 0] @ p @ centred[:, 1]],
                    [centred[:, 0] @ p @ centred[:, 1], p.sum(0) @ centred[:, 1] ** 2],
                ]
            )
            * cell
        )
        minor, major = np.sqrt(np.linalg.eigvalsh(covariance))
        mode = _peak(side, np.log(p))
        seen = np.abs(side) <= 3
        shown = log_likelihood[np.ix_(seen, seen)]
        rows.append(
            {
                "likelihood": name,
                "mode f1": mode[0],
                "mode f2": mode[1],
                "mean f1": float(mean[0]),
                "mean f2": float(mean[1]),
                "sd f1": float(np.sqrt(covariance[0, 0])),
                "sd f2": float(np.sqrt(covariance[1, 1])),
                "correlation": round(float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])), 12),
                "axis ratio": float(major / minor),
                "peak density": float(p.max()),
                "KL to softmax": float((p * np.log(p / target)).sum() * cell),
                "log evidence": log_evidence,
                "origin / best": float(np.exp(log_likelihood[len(side) // 2, len(side) // 2] - shown.max())),
                "range of log L": float(np.ptp(shown)),
            }
        )
    return rows


def likelihoods_figure(out: Path, n_points: int = 401) -> list[Path]:
    """Write contours of likelihoods and posteriors into `out`, with their numbers and a summary in words."""
    surfaces = likelihood_surfaces(n_points)
    summary = summarise_surfaces(surfaces)
    figure, axes = new_figure(2, 4, (11.0, 5.8), sharex=True, sharey=True)
    highest = max(s.posterior.max() for s in surfaces.values())
    for column, (name, s) in enumerate(surfaces.items()):
        # A Gaussian density is not a probability of y, so it has its own scale. The others share the scale 0 to 1.
        top = float(np.exp(s.log_likelihood).max()) if issubclass(STUDIED[name], Gaussian) else 1.0
        _contours(axes[column], s.side, np.exp(s.log_likelihood), np.linspace(0, top, 11))
        _contours(axes[4 + column], s.side, s.posterior, np.linspace(0, highest, 11))
        axes[column].set_title(TITLES[name])
        axes[4 + column].set_xlabel("$f_1$")
        row = summary[column]
        axes[4 + column].plot(row["mode f1"], row["mode f2"], "x", color="white", markersize=6)
    axes[0].set_ylabel("likelihood\n\n$f_2$")
    axes[4].set_ylabel("posterior\n\n$f_2$")
    figure.suptitle("One example of class 1, $f_3 = 0$; cross: the posterior's mode")
    coarse = slice(None, None, max(1, n_points // 100))
    rows = [
        {
            "likelihood": name,
            "f1": float(s.side[coarse][i]),
            "f2": float(s.side[coarse][j]),
            "log_likelihood": float(s.log_likelihood[coarse, coarse][i, j]),
            "posterior": float(s.posterior[coarse, coarse][i, j]),
        }
        for name, s in surfaces.items()
        for i, j in np.argwhere((np.abs(s.side[coarse])[:, None] <= 3) & (np.abs(s.side[coarse]) <= 3)).tolist()
    ]
    text = f"# Likelihoods and posteriors\n\n{_words(summary)}\n\n{table(summary)}\n"
    return [
        *save_figure(figure, out / "likelihoods"),
        write_rows(out / "likelihoods.csv", rows),
        write_json(out / "likelihoods.json", {"settings": {"n_points": n_points}, "summary": summary}),
        write_text(out / "likelihoods.md", text),
    ]


def _peak(side: Float[np.ndarray, " k"], log_p: Float[np.ndarray, "k k"]) -> list[float]:
    """Locate the mode between grid points: one Newton step from the best point, by finite differences."""
    i, j = np.unravel_index(log_p.argmax(), log_p.shape)
    z = log_p[i - 1 : i + 2, j - 1 : j + 2]
    slope = np.array([z[2, 1] - z[0, 1], z[1, 2] - z[1, 0]]) / 2
    across = (z[2, 2] - z[2, 0] - z[0, 2] + z[0, 0]) / 4
    along = z[2, 1] - 2 * z[1, 1] + z[0, 1], z[1, 2] - 2 * z[1, 1] + z[1, 0]
    offset = -np.linalg.solve(np.array([[along[0], across], [across, along[1]]]), slope)
    peak: list[float] = (side[[i, j]] + (side[1] - side[0]) * offset).tolist()
    return peak


def _contours(
    axes: Axes, side: Float[np.ndarray, " k"], z: Float[np.ndarray, "k k"], levels: Float[np.ndarray, " l"]
) -> None:
    seen = np.flatnonzero(np.abs(side) < 3.2)[::2]
    for draw, options in ((axes.contourf, {"cmap": "viridis"}), (axes.contour, {"colors": "white", "linewidths": 0.3})):
        draw(side[seen], side[seen], z[np.ix_(seen, seen)].T, levels, **options)
    axes.set(xlim=(-3, 3), ylim=(-3, 3), aspect="equal")


def _words(summary: list[Row]) -> str:
    rows = {row["likelihood"]: row for row in summary}
    spread = {name: row["sd f1"] * row["sd f2"] * np.sqrt(1 - row["correlation"] ** 2) for name, row in rows.items()}
    ordered = sorted(spread, key=lambda name: spread[name])
    near = sorted((name for name in rows if name != "softmax"), key=lambda name: rows[name]["KL to softmax"])
    flat = sorted(rows, key=lambda name: rows[name]["range of log L"])
    softmax, ove = rows["softmax"], rows["one-vs-each"]
    return "\n".join(
        [
            "- Modes: "
            + "; ".join(f"{TITLES[name]} ({r['mode f1']:.2f}, {r['mode f2']:.2f})" for name, r in rows.items())
            + ".",
            "- Posteriors from most peaked to most spread out (area of the one-sigma ellipse divided by pi): "
            + ", ".join(f"{TITLES[name]} {spread[name]:.3f}" for name in ordered)
            + ".",
            "- Closest to softmax's posterior (KL): "
            + ", ".join(f"{TITLES[name]} {rows[name]['KL to softmax']:.4f}" for name in near)
            + ".",
            f"- Ratio of the longest to the shortest axis: softmax {softmax['axis ratio']:.3f}, "
            f"one-vs-each {ove['axis ratio']:.3f}.",
            f"- The flattest likelihood over the square of side 6 is {TITLES[flat[0]]} (range of its logarithm "
            f"{rows[flat[0]]['range of log L']:.2f}, softmax {softmax['range of log L']:.2f}).",
            f"- At the origin one-vs-each has {ove['origin / best']:.3f} of its largest value in the square, softmax "
            f"{softmax['origin / best']:.3f}.",
        ]
    )
