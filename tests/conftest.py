import contextlib
import gc
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
import torch
from hypothesis import settings

from processes import Processes

# One thread and no random examples: the same run every time, whatever else the machine does.
torch.set_num_threads(1)
settings.register_profile("polyshot", derandomize=True, deadline=None, max_examples=80)
settings.load_profile("polyshot")

# jaxtyping's import hook has Python compile again what is imported for the first time inside polyshot.
for _name in (
    "matplotlib", "numba", "PIL.Image", "polyagamma", "rich.console", "safetensors.torch", "scipy.stats",
    "sklearn.isotonic", "sklearn.utils.validation", "starlette.applications", "typer", "uvicorn",
):  # fmt: skip
    with contextlib.suppress(ImportError):
        importlib.import_module(_name)

# polyshot is imported inside the fixtures, because this file is read before the checks of shapes are set up.


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what is there before the first test and stays until the end."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture
def jobs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps call their commands here, one after the other, and not in processes that take seconds to start."""
    from typer.testing import CliRunner

    from polyshot.cli import app
    from polyshot.runs import launchers
    from polyshot.system.parallel import map_unordered

    def run(command: tuple[str, ...], job: Any, log: BinaryIO) -> int:
        assert command[:3] == (sys.executable, "-m", "polyshot")
        done = CliRunner().invoke(app, command[3:])
        log.write(done.output.encode())
        return done.exit_code

    monkeypatch.setattr(launchers, "_run", run)
    monkeypatch.setattr(launchers, "map_unordered", lambda function, jobs, _: map_unordered(function, jobs))


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are forked from the server of processes.py; spawned ones are in test_parallel.py and test_kill.py."""
    monkeypatch.setattr("polyshot.system.parallel.multiprocessing", SimpleNamespace(get_context=lambda _: Processes))
