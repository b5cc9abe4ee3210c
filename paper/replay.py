"""Choose the best weights of a finished run again, by the validation classes of another scenario.

    python -m paper.replay mini-imagenet/5-shot/ove-pl mini-imagenet-to-cub/5-shot/ove-pl

Both scenarios train on the same classes, so one training serves both. The first run was trained with
`keep_weights = true`. Its weights of every validation are calibrated and scored on the second scenario's validation
classes, and the best become the second run, whose evaluation is `python -m paper.run` as for any other.
"""

import argparse
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paper.run import CONFIGURATIONS, RUNS
from polyshot.data import load_scenario
from polyshot.errors import InputError
from polyshot.runs.config import TrainingConfig, read_toml
from polyshot.runs.distributed import Team
from polyshot.runs.folder import Checkpoint, RunFolder
from polyshot.runs.trainer import prepare
from polyshot.runs.validation import validate, validation_sampler
from polyshot.system.progress import Progress

_CPU = torch.device("cpu")


def replay(source: RunFolder, config: TrainingConfig, out: Path, root: Path | None = None) -> None:
    """Write the run that training `config` would have left, from the kept weights of `source`."""
    scenario = load_scenario(config.scenario, root, config.rotations)
    config, method, _ = prepare(config, scenario)
    before = load_scenario(source.config.scenario, root)
    if before.sources[0] != scenario.sources[0]:
        raise InputError(f"{source.config.scenario} and {config.scenario} have different training classes")
    if replace(source.config, scenario=config.scenario, keep_weights=config.keep_weights) != config:
        raise InputError(f"{source.path}: was trained with other settings than those asked for")
    kept = list(source.kept())
    if not source.finished or len(kept) != sum("validation_accuracy" in entry for entry in source.history):
        raise InputError(f"{source.path}: train it to its end with keep_weights = true")
    building = out.with_name(f".{out.name}.replay")  # moved to its place when it is complete
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    folder, last = RunFolder(building), source.last()
    folder.create(config, method.space, source.environment["threads"], last)
    validation, entries, best = validation_sampler(scenario, config), dict[int, dict[str, Any]](), -1.0
    with Progress(f"validating on {config.scenario}", len(kept)) as bar:
        for number, (tensors, entry) in enumerate(kept, start=1):
            source.load_weights(method, tensors)
            accuracy = validate(method, validation, config.validation_episodes, _CPU, Team())
            numbers = {n: t.item() for n, t in method.state_dict().items() if t.numel() == 1 and n in entry}
            entries[entry["epoch"]] = entry | numbers | {"validation_accuracy": accuracy}
            if accuracy > best:
                best = accuracy
                weights = {f"method.{name}": t for name, t in method.state_dict().items()}
                folder.save_best(weights, entries[entry["epoch"]])
            bar.update(number)
    history = [entries.get(entry["epoch"], entry) for entry in source.history]
    folder.write_history(history)
    folder.save_last(Checkpoint(last.tensors, {**last.record, "history": history}))
    folder.remember(scenario, _CPU)
    os.replace(building, out)


def main() -> None:
    """Replay one run as another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("finished", help="PLACE/NAME of the run that was trained")
    parser.add_argument("other", help="PLACE/NAME of the run to make")
    given = parser.parse_args()
    file = CONFIGURATIONS / f"{given.other}.toml"
    torch.set_num_threads(1)
    replay(
        RunFolder(RUNS / given.finished), TrainingConfig.from_mapping(read_toml(file), str(file)), RUNS / given.other
    )


if __name__ == "__main__":
    main()
