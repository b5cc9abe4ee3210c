"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

_LINE_SECONDS = 30.0


class Progress:
    """Counts from `done` to `total`, with rate and time left; `quiet` shows nothing at all."""

    def __init__(self, title: str, total: int, done: int = 0, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        self._title = escape(title)  # a run called [x] is no markup
        self._total = total
        self._first = self._done = done
        self._start = self._spoken = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task(self._title, total=total, completed=done, note="")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, done: int, loss: float | None = None) -> None:
        """So many are done."""
        self._done = done
        note = f"{self._rate():.1f}/s" + ("" if loss is None else f"  loss {loss:.3f}")
        self._bar.update(self._task, completed=done, note=note)
        if self._bar.disable and time.monotonic() - self._spoken > _LINE_SECONDS:
            self._line(note)

    def say(self, entry: dict[str, Any]) -> None:
        """A line of results, above the bar."""
        text = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in entry.items())
        if self._bar.disable:
            self._line(text)
        else:
            self._bar.console.print(text, highlight=False)

    def _rate(self) -> float:
        return (self._done - self._first) / max(time.monotonic() - self._start, 1e-9)

    def _line(self, text: str) -> None:
        rate = self._rate()
        left = f"  {(self._total - self._done) / rate:.0f} s left" if rate > 0 else ""
        self._console.print(f"{self._title}  {self._done}/{self._total}  {text}{left}", highlight=False, soft_wrap=True)
        self._spoken = time.monotonic()
