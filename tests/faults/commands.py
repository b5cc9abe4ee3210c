"""Small work for every command that writes files, to be killed, starved and locked out by the tests.

Each function takes the folder of inputs and the folder to write to, and the same call continues what was interrupted.
"""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.data import import_dataset
from polyshot.errors import DataError
from polyshot.evaluation.evaluate import evaluate
from polyshot.evaluation.protocols import Changes
from polyshot.runs.config import TrainingConfig
from polyshot.runs.trainer import train
from processes import Processes
from small_runs import small, write_embeddings
from tests.data import official


def write_inputs(folder: Path) -> Path:
    """Embeddings and a run on them, a folder of photos, and vectors to classify."""
    train(training(write_embeddings(folder / "own.npz")), folder / "run", threads=1, quiet=True)
    rng = np.random.default_rng(0)
    for name in ("ant", "bee"):
        for k in range(10):
            official.photo(folder / "farm" / name / f"{k}.png", tuple(rng.integers(0, 256, 3).tolist()), (300, 300))
    labels = np.where(np.arange(310) < 10, np.arange(310) % 2, -1)
    np.savez(folder / "vectors.npz", X=rng.normal(size=(310, 3)) + labels[:, None], labels=labels)
    return folder


def training(data: Path) -> TrainingConfig:
    """A run of 32 episodes."""
    return small("ove-gp", f"embeddings:{data}", options={"n_chains": 2, "test_steps": 2}, epochs=8)


def train_run(inputs: Path, out: Path) -> None:
    train(training(inputs / "own.npz"), out, threads=1, quiet=True)


def evaluate_run(inputs: Path, out: Path, workers: int = 1) -> None:
    changes = Changes(episodes=150, batches=2, queries=3)
    evaluate([inputs / "run"], ["accuracy"], changes, out=out, workers=workers, quiet=True)


def import_photos(inputs: Path, out: Path) -> None:
    import_dataset("folder", inputs / "farm", out, 84)


def classify_vectors(inputs: Path, out: Path) -> None:
    words = ["classify", str(inputs / "vectors.npz"), "--force", "--out", str(out / "answers.csv")]
    result = CliRunner().invoke(app, [*words, "--save", str(out / "model.polyshot")])
    if result.exit_code:
        raise DataError(result.stderr)


COMMANDS: dict[str, Callable[[Path, Path], None]] = {
    "train": train_run,
    "evaluate": evaluate_run,
    "data import": import_photos,
    "classify": classify_vectors,
}


def live(command: Callable[..., None], *arguments: object, seconds: float | None = None) -> float | None:
    """The seconds that a command took in a process of its own; None if it was killed before its end."""
    start = time.monotonic()
    process = Processes.Process(target=command, args=arguments)
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return time.monotonic() - start if process.exitcode == 0 else None
