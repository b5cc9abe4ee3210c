"""One training that serves two scenarios."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from paper.replay import replay
from polyshot.data.scenarios import SCENARIOS, Scenario, Source
from polyshot.errors import InputError
from polyshot.runs.folder import RunFolder
from polyshot.runs.trainer import train
from small_runs import CHARACTERS, small

TWIN = "omniglot-to-other-classes"


@pytest.fixture
def twin() -> Iterator[str]:
    """A scenario with the same training classes whose validation classes are the test classes of the first."""
    train_on = SCENARIOS.find(CHARACTERS).sources[0]
    scenario = Scenario(TWIN, (train_on, Source("chars74k", "test"), Source("chars74k", "validation")))
    SCENARIOS.register(TWIN, scenario)
    yield TWIN
    SCENARIOS.unregister(TWIN)


def test_a_replay_equals_a_training_of_its_own(twin: str, root: Path, tmp_path: Path) -> None:
    config = small("protonet", CHARACTERS, keep_weights=True)
    train(config, tmp_path / "first", root, quiet=True)
    second = replace(config, scenario=twin, keep_weights=False)
    replay(RunFolder(tmp_path / "first"), second, tmp_path / "replayed", root)
    train(second, tmp_path / "trained", root, quiet=True)
    replayed, trained, first = (RunFolder(tmp_path / name) for name in ("replayed", "trained", "first"))
    accuracies = [[entry["validation_accuracy"] for entry in run.history] for run in (replayed, trained, first)]
    assert accuracies[0] == accuracies[1] != accuracies[2]
    (ours, entry), (theirs, expected) = replayed.best(), trained.best()
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    assert entry["epoch"] == expected["epoch"]
    files = sorted(path.name for path in (tmp_path / "trained").iterdir() if path.name != ".lock")
    assert sorted(path.name for path in (tmp_path / "replayed").iterdir()) == files
    assert train(second, tmp_path / "replayed", root, quiet=True) == tmp_path / "replayed"  # it has ended


def test_calibration_is_the_other_scenarios(twin: str, root: Path, tmp_path: Path) -> None:
    config = small("ove-gp", CHARACTERS, keep_weights=True)
    train(config, tmp_path / "first", root, quiet=True)
    replay(RunFolder(tmp_path / "first"), replace(config, scenario=twin), tmp_path / "second", root)
    method, entry = RunFolder(tmp_path / "second").load_method()
    assert float(method.log_factor) == entry["log_factor"]


def test_what_cannot_be_replayed_is_refused(twin: str, root: Path, tmp_path: Path) -> None:
    config = small("protonet", CHARACTERS)
    train(config, tmp_path / "first", root, quiet=True)
    first = RunFolder(tmp_path / "first")
    with pytest.raises(InputError, match="keep_weights = true"):
        replay(first, replace(config, scenario=twin), tmp_path / "second", root)
    with pytest.raises(InputError, match="other settings"):
        replay(first, replace(config, scenario=twin, seed=1), tmp_path / "second", root)
    with pytest.raises(InputError, match="different training classes"):
        replay(first, replace(config, scenario="glyphs"), tmp_path / "second", root)
    assert not (tmp_path / "second").exists()
