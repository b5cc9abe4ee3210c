"""How the studies write figures, numbers and text: PNG and SVG, CSV, JSON, Markdown; the same bytes every time."""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from polyshot.errors import InputError
from polyshot.system.files import write_atomically

Row = Mapping[str, Any]

_LOOK: Any = {
    "svg.hashsalt": "polyshot",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def make_folder(out: Path) -> Path:
    """Create the folder unless it exists, and return it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"--out {out} is a file or lies inside one; give a folder") from error
    except OSError as error:
        raise InputError(f"--out {out} cannot be created ({error.strerror}); give another folder") from error
    if not os.access(out, os.W_OK):
        raise InputError(f"--out {out} is not writable; give another folder")
    return out


def new_figure(n_rows: int, n_columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure that does not use pyplot's global state, and its axes row by row."""
    with matplotlib.rc_context(_LOOK):
        figure = Figure(figsize=size, layout="constrained")
        return figure, list(figure.subplots(n_rows, n_columns, squeeze=False, **options).flat)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write stem.png with 256 colours and stem.svg, both without a date."""
    pixels, png, svg = BytesIO(), BytesIO(), BytesIO()
    with matplotlib.rc_context(_LOOK):
        figure.savefig(pixels, dpi=110)
        figure.savefig(svg, format="svg", metadata={"Date": None})
    with Image.open(pixels) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(png, "PNG", optimize=True)
    return [
        _write(stem.with_suffix(".png"), png.getvalue()),
        _write(stem.with_suffix(".svg"), svg.getvalue()),
    ]


def write_rows(path: Path, rows: Sequence[Row]) -> Path:
    """Write rows as CSV, with the columns of the first row."""
    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_text(path, text.getvalue())


def write_json(path: Path, content: Any) -> Path:
    """Write content as JSON; NaN and infinity are refused."""
    return write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> Path:
    """Write text as UTF-8."""
    return _write(path, text.encode())


def table(rows: Sequence[Row]) -> str:
    """Format rows as a Markdown table, numbers to four significant digits."""
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _write(path: Path, content: bytes) -> Path:
    write_atomically(path, content)
    return path
