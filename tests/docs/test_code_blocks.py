"""Every Python block of every page runs; blocks of one page share a namespace, in order, in a folder of their own.

Those of the README run in tests/test_readme.py, which also compares what they print.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_pages import PAGES, ROOT, Block, blocks, name_of

from small_runs import drawings

PYTHON = {
    page: found
    for page in PAGES
    if page != ROOT / "README.md" and (found := [b for b in blocks(page) if b.language == "python"])
}
_started: dict[Path, "Page"] = {}


class Page:
    """A page under way: its namespace, its folder, and how many blocks have run."""

    def __init__(self, folder: Path, code: list[Block]) -> None:
        self.folder = folder
        self.code = code
        self.done = 0
        self.namespace: dict[str, Any] = {"__name__": "__page__"}

    def run_to(self, page: Path, last: int) -> None:
        """Run the blocks up to `last` that have not run yet."""
        for block in self.code[self.done : last + 1]:
            self.done += 1
            source = "\n" * (block.line - 1) + block.code  # tracebacks then name the line of the page
            exec(compile(source, str(page), "exec"), self.namespace)


@pytest.fixture(scope="session")
def small_runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/ove and runs/protonet, which several pages open."""
    from polyshot.runs.config import TrainingConfig
    from polyshot.runs.trainer import train

    folder = tmp_path_factory.mktemp("trained")
    for name, method in (("ove", "ove-gp"), ("protonet", "protonet")):
        config = TrainingConfig(method, "glyphs", epochs=1, episodes_per_epoch=2, validation_episodes=2)
        train(config, folder / "runs" / name, threads=1)
    return folder


@pytest.fixture(scope="session")
def characters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small omniglot.npz and chars74k.npz that have enough examples per class for any protocol."""
    from polyshot.data.packed import write_packed

    folder = tmp_path_factory.mktemp("characters")
    for name, seed, class_names in (
        ("omniglot", 0, [f"Greek/character{i:02}" for i in range(12)]),
        ("chars74k", 1, list("0123456789")),
    ):
        images, labels = drawings(len(class_names), 20, seed)
        arrays = {"images": images, "labels": labels, "class_names": np.array(class_names)}
        write_packed(folder / f"{name}.npz", arrays)
    return folder


@pytest.fixture(scope="module", autouse=True)
def registries_as_before() -> Iterator[None]:
    """Remove what the pages register."""
    from polyshot.data.registry import DATASETS
    from polyshot.data.scenarios import SCENARIOS
    from polyshot.evaluation.measures import MEASURES
    from polyshot.gp import KERNELS, LIKELIHOODS
    from polyshot.methods import METHODS

    registries = (METHODS, KERNELS, LIKELIHOODS, DATASETS, SCENARIOS, MEASURES)
    before = [set(registry) for registry in registries]
    yield
    for registry, names in zip(registries, before, strict=True):
        for name in set(registry) - names:
            registry.unregister(name)


@pytest.mark.parametrize(
    ("page", "number"),
    [pytest.param(page, k, id=f"{name_of(page)}-{k + 1}") for page, found in PYTHON.items() for k in range(len(found))],
)
def test_a_python_block_runs(
    page: Path,
    number: int,
    characters: Path,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    jobs_in_this_process: None,
) -> None:
    started = _started.setdefault(page, Page(tmp_path_factory.mktemp("page"), PYTHON[page]))
    if any("runs/" in block.code for block in started.code) and not (started.folder / "runs").exists():
        shutil.copytree(request.getfixturevalue("small_runs_folder") / "runs", started.folder / "runs")
    monkeypatch.chdir(started.folder)
    monkeypatch.setenv("POLYSHOT_DATA", str(characters))
    started.run_to(page, number)
