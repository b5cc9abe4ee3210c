from pathlib import Path

import numpy as np
import pytest

from polyshot.runs.config import TrainingConfig
from polyshot.runs.trainer import train

SMALL = {"n_chains": 3, "test_steps": 3}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `ove`, `match` and `dkt` on vectors: 24 classes of 14, of which 6 are test classes."""
    folder = tmp_path_factory.mktemp("trained")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 14)
    x = rng.normal(size=(24, 6))[labels] + 0.8 * rng.normal(size=(len(labels), 6))
    np.savez(folder / "data.npz", X=x.astype(np.float32), labels=labels)
    for name, method, options in (("ove", "ove-gp", SMALL), ("match", "matchingnet", {}), ("dkt", "dkt", {})):
        config = TrainingConfig(
            method, f"embeddings:{folder / 'data.npz'}", shots=2, ways=3, queries=2, options=options, epochs=1,
            episodes_per_epoch=3, validation_episodes=2,
        )  # fmt: skip
        train(config, folder / name)
    return folder
