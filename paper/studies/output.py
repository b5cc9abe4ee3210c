"""Where an experiment's figures, numbers and text go: PNG and SVG, CSV, JSON, Markdown, the same bytes every time."""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from polyshot.errors import InputError
from polyshot.system.files import write_atomically

Row = Mapping[str, Any]

# One colour a likelihood in all figures (Okabe & Ito's, which colour-blind people can tell apart).
COLOURS = {
    "softmax": "#000000",
    "gaussian": "#D55E00",
    "logistic-softmax": "#0072B2",
    "one-vs-each": "#009E73",
    "sklearn-gp": "#CC79A7",
    "logistic-regression": "#7F7F7F",
}
NAMES = {
    "softmax": "Softmax",
    "gaussian": "Gaussian",
    "logistic-softmax": "Logistic softmax",
    "one-vs-each": "One-vs-each",
    "sklearn-gp": "scikit-learn GP",
    "logistic-regression": "Logistic regression",
}
_LOOK: Any = {
    "svg.hashsalt": "polyshot",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def make_folder(out: Path) -> Path:
    """The folder, made if it is not there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"--out must be a folder, and {out} is or lies under a file") from error
    except OSError as error:
        raise InputError(f"--out {out} cannot be written to: {error.strerror}") from error
    if not os.access(out, os.W_OK):
        raise InputError(f"--out {out} cannot be written to")
    return out


def new_figure(n_rows: int, n_columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure without pyplot's state, and its axes row by row."""
    with matplotlib.rc_context(_LOOK):
        figure = Figure(figsize=size, layout="constrained")
        return figure, list(figure.subplots(n_rows, n_columns, squeeze=False, **options).flat)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write stem.png, of 256 colours, and stem.svg, both without a date."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    pixels = BytesIO()
    with matplotlib.rc_context(_LOOK):
        figure.savefig(pixels, dpi=110)
        figure.savefig(paths[1], metadata={"Date": None})
    with Image.open(pixels) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(paths[0], "PNG", optimize=True)
    return paths


def write_rows(path: Path, rows: Sequence[Row]) -> Path:
    """Rows as CSV, columns as in the first row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_json(path: Path, content: Any) -> Path:
    """JSON that appears whole or not at all, whatever interrupts the writing."""
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    return path


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table; numbers to four significant digits."""
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
