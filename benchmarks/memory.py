"""Does the memory stay flat over 10,000 episodes of training and of evaluation?

    python -m benchmarks.memory [--episodes 10000] [--out benchmarks/results/memory.json]

Writes the table into docs/robustness.md. Trains `ove-gp` (2-way, 1-shot) on made-up embeddings of 8 numbers, then
predicts as many test episodes. The memory of the process (resident, on Linux) is noted ten times in each. What counts
is its growth after the first tenth, in which caches fill.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.estimator_table import put_into_docs
from polyshot.data import EpisodeSampler, load_scenario
from polyshot.evaluation.outputs import predict_chunk
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import RunFolder
from polyshot.runs.trainer import train

PARTS, AT_ONCE = 10, 20


def resident() -> float:
    """Megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/memory.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    per_part = arguments.episodes // PARTS
    noted: dict[str, list[float]] = {"training": [], "evaluation": []}

    def note(_: dict[str, Any]) -> None:
        noted["training"].append(resident())

    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        data = Path(folder) / "own.npz"
        np.savez(data, X=rng.normal(size=(288, 8)).astype(np.float32), labels=np.repeat(np.arange(24), 12))
        config = TrainingConfig(
            "ove-gp", f"embeddings:{data}", ways=2, shots=1, queries=2, epochs=PARTS, episodes_per_epoch=per_part,
            validation_episodes=2, options={"n_chains": 2, "test_steps": 2},
        )  # fmt: skip
        train(config, Path(folder) / "run", quiet=True, callbacks=[note])
        method, _ = RunFolder(Path(folder) / "run").load_method()
        sampler = EpisodeSampler(load_scenario(config.scenario).test, 2, 1, 2, 0)
        for first in range(0, arguments.episodes, AT_ONCE):
            predict_chunk(method, sampler, range(first, first + AT_ONCE))
            if (first + AT_ONCE) % per_part == 0:
                noted["evaluation"].append(resident())
    growth = {name: round(values[-1] - values[0], 1) for name, values in noted.items()}
    lines = [f"| | after {per_part:,} episodes | after {arguments.episodes:,} | growth |", "|---|---|---|---|"]
    for name, values in noted.items():
        lines.append(f"| {name} | {values[0]:.1f} MB | {values[-1]:.1f} MB | {growth[name]:.1f} MB |")
    print(*lines, sep="\n")
    put_into_docs("memory", "\n".join(lines))
    record = {"episodes": arguments.episodes, "megabytes": {n: [round(x, 1) for x in v] for n, v in noted.items()}}
    arguments.out.write_text(json.dumps({**record, "growth": growth}, indent=1) + "\n")


if __name__ == "__main__":
    main()
