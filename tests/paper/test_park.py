"""A run that was parked on one machine goes on on another."""

from pathlib import Path

import pytest
import torch

from paper import run
from paper.park import park
from polyshot.runs.folder import Checkpoint, RunFolder
from polyshot.runs.trainer import train
from small_runs import CHARACTERS, small


def test_a_parked_run_goes_on_to_the_same_weights(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small("protonet", CHARACTERS)
    train(config, tmp_path / "whole", root, quiet=True)
    save = RunFolder.save_last

    def save_and_stop(folder: RunFolder, state: Checkpoint) -> None:
        save(folder, state)
        if len(state.record["history"]) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_last", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "here", root, quiet=True)
    monkeypatch.setattr(run, "PARKED", tmp_path / "parked")
    monkeypatch.setattr(run, "RUNS", tmp_path / "there")
    park(tmp_path / "here", tmp_path / "parked" / "place" / "name")
    run.take_up("place/name")
    there = tmp_path / "there" / "place" / "name"
    assert len(RunFolder(there).last().record["history"]) == 2
    train(config, there, root, quiet=True)
    whole, parked = (RunFolder(tmp_path / name).best().tensors for name in ("whole", there))
    assert all(torch.equal(parked[name], tensor) for name, tensor in whole.items())
