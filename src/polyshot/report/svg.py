"""Small SVG charts for the report; CSS classes give the colours, so that they suit a light and a dark page."""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from polyshot.evaluation.metrics import Interval
from polyshot.report.markup import escape

Number: TypeAlias = float | int
Numbers: TypeAlias = Sequence[Number] | npt.NDArray[np.float64]

_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 12.0, 10.0, 40.0
DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2 1 2", "1 4", "14 3 3 3")


class Chart:
    """A chart with two axes; marks are in the units of the data. The y axis is always in per cent."""

    def __init__(
        self,
        description: str,
        x: tuple[Number, Number],
        y: tuple[Number, Number],
        x_label: str,
        y_label: str,
        size: tuple[int, int] = (280, 220),
        x_percent: bool = True,
    ) -> None:
        self.width, self.height = size
        self._x, self._y = x, y
        self._parts: list[str] = []
        self._description = description
        for value in nice_ticks(*x):
            self._parts.append(
                _text(self._px(value), self.height - _BOTTOM + 15, tick_text(value, x_percent), "tick mid")
            )
        for value in nice_ticks(*y):
            row = self._py(value)
            self._parts.append(_path([(_LEFT, row), (self.width - _RIGHT, row)], "grid"))
            self._parts.append(_text(_LEFT - 6, row + 4, tick_text(value, percent=True), "tick end"))
        self._parts.append(_text((_LEFT + self.width - _RIGHT) / 2, self.height - 5, x_label, "label mid"))
        middle = (_TOP + self.height - _BOTTOM) / 2
        self._parts.append(
            f'<text class="label mid" transform="translate(11 {middle:.1f}) rotate(-90)">{escape(y_label)}</text>'
        )

    def line(self, xs: Numbers, ys: Numbers, css: str, dash: str = "") -> None:
        """Draw a polyline."""
        self._parts.append(_path([(self._px(x), self._py(y)) for x, y in zip(xs, ys, strict=True)], css, dash))

    def box(self, x0: Number, y0: Number, x1: Number, y1: Number, css: str) -> None:
        """Draw a rectangle between two corners."""
        left, right = sorted((self._px(x0), self._px(x1)))
        top, bottom = sorted((self._py(y0), self._py(y1)))
        self._parts.append(
            f'<rect class="{css}" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"/>'
        )

    def steps(self, edges: Numbers, heights: Numbers, css: str) -> None:
        """Draw the outline of a histogram."""
        xs = [edge for edge in edges for _ in (0, 1)]
        ys = [0.0, *(height for height in heights for _ in (0, 1)), 0.0]
        self.line(xs, ys, css)

    def svg(self) -> str:
        """The chart as an element."""
        frame = [(_LEFT, _TOP), (_LEFT, self.height - _BOTTOM), (self.width - _RIGHT, self.height - _BOTTOM)]
        return svg(self.width, self.height, self._description, [*self._parts, _path(frame, "axis")])

    def _px(self, x: Number) -> Number:
        low, high = self._x
        return _LEFT + (x - low) / (high - low) * (self.width - _LEFT - _RIGHT)

    def _py(self, y: Number) -> Number:
        low, high = self._y
        return self.height - _BOTTOM - (y - low) / (high - low) * (self.height - _TOP - _BOTTOM)


def svg(width: Number, height: Number, description: str, parts: Sequence[str]) -> str:
    """An image with a description for screen readers."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(description)}">{"".join(parts)}</svg>'
    )


class Bar(NamedTuple):
    """A bar with its interval: label, length, text at its end, and CSS class."""

    name: str
    interval: Interval
    text: str
    css: str


def interval_bars(description: str, rows: Sequence[Bar], largest: Number) -> str:
    """Horizontal bars with their intervals."""
    step, left, right, width = 24, 104, 46, 350
    scale = (width - left - right) / largest
    parts = []
    for i, (name, interval, text, css) in enumerate(rows):
        top = i * step
        middle = top + step / 2
        parts.append(_text(left - 8, middle + 4, shortened(name, 13), "label end"))
        end = interval.estimate
        size = f'width="{end * scale:.1f}" height="{step - 8}"'
        parts.append(f'<rect class="fill {css}" x="{left}" y="{top + 4}" {size}/>')
        if interval.bounded:
            end = max(end, interval.high)
            ends = [left + max(bound, 0) * scale for bound in (interval.low, interval.high)]
            parts.append(_path([(ends[0], middle), (ends[1], middle)], "whisker"))
            parts += [_path([(x, middle - 4), (x, middle + 4)], "whisker") for x in ends]
        parts.append(_text(left + end * scale + 6, middle + 4, text, "label"))
    return svg(width, len(rows) * step, description, parts)


def swatch(css: str, dash: str) -> str:
    """A sample of a line, for a legend."""
    line = _path([(0, 6), (30, 6)], f"line {css}", dash)
    return f'<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true">{line}</svg>'


def shares(probabilities: Numbers, marked: int) -> str:
    """Tiny bars of class probabilities; the bar of the class `marked` stands out."""
    bars = [
        f'<rect class="{"share own" if c == marked else "share"}" x="{7 * c}" y="{16 - max(1.0, 16 * p):.1f}" '
        f'width="5" height="{max(1.0, 16 * p):.1f}"/>'
        for c, p in enumerate(probabilities)
    ]
    width = 7 * len(probabilities)
    size = f'viewBox="0 0 {width} 16" width="{width}" height="16"'
    return f'<svg class="shares" {size} aria-hidden="true">{"".join(bars)}</svg>'


def nice_ticks(low: Number, high: Number, most: int = 5) -> list[Number]:
    """Round numbers within the range, evenly spaced; about `most` of them at most."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_text(value: Number, percent: bool) -> str:
    """A tick as text."""
    return f"{100 * value:.4g}" if percent else f"{value + 0.0:.4g}"


def shortened(text: str, most: int) -> str:
    """The text, cut off if it is too long."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(x: Number, y: Number, text: str, css: str) -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _path(points: Sequence[tuple[Number, Number]], css: str, dash: str = "") -> str:
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline class="{css}" points="{steps}"{dashes}/>'
