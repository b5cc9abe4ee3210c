from pathlib import Path

import pytest
import torch
from hypothesis import settings

# One thread and no random examples: the same run every time, whatever else the machine does.
torch.set_num_threads(1)
settings.register_profile("polyshot", derandomize=True, deadline=None, max_examples=80)
settings.load_profile("polyshot")

# polyshot is imported inside the fixtures, because this file is read before the checks of shapes are set up.


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small omniglot.npz and chars74k.npz, for reading."""
    from small_runs import write_characters

    return write_characters(tmp_path_factory.mktemp("characters"))


@pytest.fixture(scope="session")
def embeddings(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The scenario of a small set of embeddings, for reading."""
    from small_runs import write_embeddings

    return f"embeddings:{write_embeddings(tmp_path_factory.mktemp('embeddings') / 'own.npz')}"
