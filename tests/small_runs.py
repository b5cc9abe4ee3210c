"""Small data sets and runs, for the tests of training and prediction."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyshot.data.packed import write_packed
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import RunFolder
from polyshot.runs.trainer import train
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.system.sealed import digest, read_sealed, write_sealed

CHARACTERS = "omniglot-to-chars74k"
SMALL = {"ways": 2, "shots": 1, "queries": 2, "epochs": 3, "episodes_per_epoch": 4, "validation_episodes": 3}


def write_embeddings(path: Path, d: int = 8) -> Path:
    """24 overlapping Gaussian classes of 12 examples: 12 to train on, 6 to validate, 6 to test."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 12)
    X = rng.normal(size=(24, d))[labels] + rng.normal(0, 0.7, (len(labels), d))
    write_packed(
        path, {"X": X.astype(np.float32), "labels": labels, "class_names": np.array([f"c{i}" for i in range(24)])}
    )
    return path


def drawings(n_classes: int, n_each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [n, 28, 28], bright blocks on black that leave the border free, and labels [n]."""
    rng = np.random.default_rng(seed)
    masters = rng.random((n_classes, 5, 5)) < 0.45
    labels = np.repeat(np.arange(n_classes), n_each)
    images = np.zeros((len(labels), 28, 28), np.uint8)
    flips = rng.random((len(labels), 5, 5)) < 0.05
    images[:, 4:24, 4:24] = 255 * np.kron(masters[labels] ^ flips, np.ones((4, 4), bool))
    return images, labels


def write_characters(root: Path) -> Path:
    """A small omniglot.npz and chars74k.npz."""
    images, labels = drawings(12, 8, 0)
    names = np.array([f"Greek/character{i:02}" for i in range(12)])
    write_packed(root / "omniglot.npz", {"images": 255 - images, "labels": labels, "class_names": names})
    images, labels = drawings(10, 8, 1)
    names = np.array(list("0123456789"))
    write_packed(root / "chars74k.npz", {"images": images, "labels": labels, "class_names": names})
    return root


def small(method: str, scenario: str, **settings: Any) -> TrainingConfig:
    return TrainingConfig(method, scenario, **{**SMALL, **settings})


def flags(config: TrainingConfig) -> list[str]:
    """The command line that says the same as a configuration made by `small`."""
    names = ("method", "scenario", "meta_batch", *SMALL)
    given = [(name, getattr(config, name)) for name in names if getattr(config, name) is not None]
    options = [("option", f"{name}={value}") for name, value in config.options.items()]
    return [text for name, value in [*given, *options] for text in (f"--{name.replace('_', '-')}", str(value))]


def log_lines(out: Path) -> list[dict[str, Any]]:
    return RunFolder(out).history


def edit_config(run: Path, **changes: Any) -> None:
    """Change config.json of a run and all that belongs to it, as nobody but a forger would."""
    content, _ = read_sealed(run / "config.json")
    write_sealed(run / "config.json", content | changes)
    for path in run.glob("*.safetensors"):
        tensors, record = load_checkpoint(path)
        save_checkpoint(path, tensors, record | {"run": digest(content | changes)})


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit the same weights, optimiser and log; only the clock may differ."""
    for name in ("last.safetensors", "best.safetensors"):
        first, second = load_checkpoint(one / name)[0], load_checkpoint(other / name)[0]
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first), name
    first_log, second_log = (
        [{**line, "seconds": 0, "processor_seconds": 0} for line in log_lines(out)] for out in (one, other)
    )
    assert first_log == second_log


def weights(out: Path, name: str = "last") -> dict[str, Tensor]:
    tensors = load_checkpoint(out / f"{name}.safetensors")[0]
    return {key.removeprefix("method."): t for key, t in tensors.items() if key.startswith("method.")}


def train_as_rank(rank: int, port: int, config: TrainingConfig, out: Path, root: Path | None) -> None:
    """One of two processes of a team, as torchrun would set it up."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    train(config, out, root, threads=1)
