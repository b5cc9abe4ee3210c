"""Decision maps of one Iris split: the largest class probability over the plane of the two features."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from contourpy import contour_generator
from jaxtyping import Float

from paper.studies.compared import TITLES
from paper.studies.iris import MODELS, Effort, Split, make_split, make_task, model_posterior, split_generator
from paper.studies.output import Row, new_figure, save_figure, write_rows

CLASSES = ("setosa", "versicolor", "virginica")
_HUES = ("#CC3311", "#33BBEE", "#EE7733")
RULE_NAMES = {"mean": "likelihood at the predictive mean", "full": "full predictive"}


class Plane(NamedTuple):
    """The grid's coordinates, the split, and the class probabilities for each (method, rule)."""

    width: Float[np.ndarray, " w"]
    height: Float[np.ndarray, " h"]
    split: Split
    maps: dict[tuple[str, str], Float[np.ndarray, "h w c"]]


def decision_maps(size: int, seed: int, effort: Effort, n_points: int = 81) -> Plane:
    """Compute maps of the three GP posteriors by both rules on split 0, up to half a centimetre beyond the data."""
    split = make_split(size, 0, seed)
    low, high = torch.cat([split.x, split.x_test]).aminmax(dim=0)
    step = float(high[0] - low[0] + 1) / (n_points - 1)
    width = np.arange(n_points) * step + float(low[0]) - 0.5
    height = np.arange(round(float(high[1] - low[1] + 1) / step) + 1) * step + float(low[1]) - 0.5
    queries = torch.from_numpy(np.stack(np.meshgrid(width, height), -1).reshape(-1, 2))
    task = make_task(split.x, split.y, queries)
    maps = {}
    for name in MODELS:
        posterior = model_posterior(name, task, effort, split_generator(name, size, 0, seed), ways=False)
        for rule, probs in posterior.probabilities.items():
            maps[name, rule] = probs.reshape(len(height), len(width), -1).numpy()
    return Plane(width, height, split, maps)


def summarise_maps(plane: Plane) -> list[Row]:
    """Confidence of each map and the total turning of its class boundaries; one row per method and rule."""
    rows: list[Row] = []
    for (method, rule), p in plane.maps.items():
        confidence = p.max(-1)
        lines = [line for margin in _margins(p) for line in contour_generator(*plane[:2], margin).lines(0.0)]
        rows.append(
            {
                "method": method,
                "rule": rule,
                "mean confidence": float(confidence.mean()),
                "share above 0.6": float((confidence > 0.6).mean()),
                "share above 0.8": float((confidence > 0.8).mean()),
                "boundaries turn (degrees)": float(np.degrees(sum(_turning(np.asarray(line)) for line in lines))),
            }
        )
    return rows


def draw_maps(plane: Plane, out: Path) -> list[Path]:
    """Write iris_maps.png, .svg and .csv."""
    figure, axes = new_figure(2, 3, (10.5, 6.2), sharex=True, sharey=True)
    edge = float(plane.width[1] - plane.width[0]) / 2
    (left, *_, right), (bottom, *_, top) = plane.width.tolist(), plane.height.tolist()
    extent = (left - edge, right + edge, bottom - edge, top + edge)
    for k, (rule, method) in enumerate((rule, method) for rule in RULE_NAMES for method in MODELS):
        p = plane.maps[method, rule]
        confidence = p.max(-1)
        image = axes[k].imshow(
            confidence, extent=extent, origin="lower", cmap="Greys", vmin=1 / 3, vmax=1, aspect="auto"
        )
        lines = axes[k].contour(plane.width, plane.height, confidence, [0.6, 0.8], colors="#0072B2", linewidths=0.6)
        axes[k].clabel(lines, fmt="%.1f", fontsize=7)
        for c, (hue, margin) in enumerate(zip(_HUES, _margins(p), strict=True)):
            axes[k].contour(plane.width, plane.height, margin, [0.0], colors="black", linewidths=1.0)
            x = plane.split.x[plane.split.y == c]
            axes[k].scatter(x[:, 0], x[:, 1], color=hue, edgecolor="white", linewidth=0.5, s=18, label=CLASSES[c])
        if k < 3:
            axes[k].set_title(TITLES[method])
        else:
            axes[k].set_xlabel("sepal length (cm)")
        if k % 3 == 0:
            axes[k].set_ylabel(f"{RULE_NAMES[rule]}\n\nsepal width (cm)")
    axes[0].legend(loc="upper left", fontsize=7, framealpha=0.9)
    figure.colorbar(image, ax=axes, label="maximum class probability", shrink=0.7)
    rows = [
        {
            "sepal length": float(x1),
            "sepal width": float(x2),
            "method": method,
            "rule": rule,
            **{name: float(p[i, j, c]) for c, name in enumerate(CLASSES)},
        }
        for (method, rule), p in plane.maps.items()
        for i, x2 in enumerate(plane.height)
        for j, x1 in enumerate(plane.width)
    ]
    return [*save_figure(figure, out / "iris_maps"), write_rows(out / "iris_maps.csv", rows)]


def _margins(p: Float[np.ndarray, "h w c"]) -> list[Float[np.ndarray, "h w"]]:
    """For each class, its probability minus the largest other one, which is zero on its boundary."""
    return [p[..., c] - np.delete(p, c, -1).max(-1) for c in range(p.shape[-1])]


def _turning(line: Float[np.ndarray, "k 2"]) -> float:
    """Sum the angles by which a polyline turns, in strides of 0.3 cm so that the grid's zigzag does not count."""
    along = np.append(0.0, np.cumsum(np.hypot(*np.diff(line, axis=0).T)))
    stops = np.linspace(0, along[-1], max(2, round(along[-1] / 0.3) + 1))
    steps = np.diff(np.stack([np.interp(stops, along, side) for side in line.T], -1), axis=0)
    heading = np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))
    return float(np.abs(np.diff(heading)).sum())
