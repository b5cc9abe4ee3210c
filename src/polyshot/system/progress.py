"""Progress of long work: a bar on a terminal that rich can draw on, plain lines elsewhere."""

import sys
import time
from collections import deque
from typing import Any

from polyshot.system.text import printable

_LINE_SECONDS = 30.0  # between plain lines
_RECENT = 50  # updates that the rate is estimated from


class Progress:
    """Counts from `done` to `total` and shows rate and time left.

    The rate is that of recent updates. The time before the first update does not count, because the first step may
    compile code.

    Parameters
    ----------
    title : str
        What is being done.
    total : int, optional
        None if it is not known yet; `update` can tell it later.
    done : int
        How many were done before.
    quiet : bool
        Show nothing.
    first : str
        Shown until the first update: why the first step may take long.

    Attributes
    ----------
    done : int
        How many are done, as of the last update.
    """

    def __init__(self, title: str, total: int | None, done: int = 0, *, quiet: bool = False, first: str = "") -> None:
        self._title = printable(title)
        self._total = total
        self.done = done
        self._quiet = quiet
        self._first = first
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self._spoken = time.monotonic()
        self._bar: Any = None if quiet else _rich_bar()
        self._task = self._bar.add_task(self._title, total=total, completed=done, note=first) if self._bar else None

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        elif self._first:
            self._line(self._first)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, done: int, loss: float | None = None, *, total: int | None = None) -> None:
        """Show that so many are done."""
        now = time.monotonic()
        self.done = done
        self._total = self._total if total is None else total
        self._recent.append((now, done))
        note = [f"{rate:.1f}/s" for rate in [self._rate()] if rate] + ([] if loss is None else [f"loss {loss:.3f}"])
        if self._bar:
            self._bar.update(self._task, completed=done, total=self._total, note="  ".join([*note, self._left()]))
        elif now - self._spoken > _LINE_SECONDS:
            self._line("  ".join(note))

    def say(self, entry: dict[str, Any]) -> None:
        """Show a line of results, above the bar if there is one."""
        text = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in entry.items())
        if self._bar:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            self._line(text)

    def _rate(self) -> float | None:
        """Return how many per second the recent updates did; None until there are two."""
        if len(self._recent) < 2:
            return None
        (start, first), (end, last) = self._recent[0], self._recent[-1]
        return (last - first) / max(end - start, 1e-9)

    def _left(self) -> str:
        rate = self._rate()
        return f"{(self._total - self.done) / rate:.0f} s left" if rate and self._total is not None else ""

    def _line(self, text: str) -> None:
        if self._quiet:
            return
        count = f"{self.done}/{'?' if self._total is None else self._total}"
        print("  ".join(filter(None, [self._title, count, text, self._left()])), file=sys.stderr, flush=True)
        self._spoken = time.monotonic()


def _rich_bar() -> Any:
    """Return a bar of rich; None where standard error is not a terminal or rich is not installed."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    title, note = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[note]"))
    return Bar(title, BarColumn(), MofNCompleteColumn(), note, TimeElapsedColumn(), console=Console(stderr=True))
