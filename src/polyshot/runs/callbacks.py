"""Send the log of a training run elsewhere while it trains. docs/sweep.md has recipes for MLflow and W&B.

A callback is any function that takes an entry of the log: `train(config, out, callbacks=[print])`. It gets a copy, and
it is called after the epoch has been saved, so it cannot change the run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Callback = Callable[[dict[str, Any]], object]


class TensorBoardLog:
    """A callback that writes event files, which `tensorboard --logdir DIR` shows.

    Each number of an entry becomes a point of the curve of its name, at its epoch. A resumed run adds a file.

    Parameters
    ----------
    folder : Path
        Where to write; a folder per run.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder))

    def __call__(self, entry: dict[str, Any]) -> None:
        """Write an entry of the log."""
        for name, value in entry.items():
            if name != "epoch":
                self._writer.add_scalar(name, value, entry["epoch"])
        self._writer.flush()
