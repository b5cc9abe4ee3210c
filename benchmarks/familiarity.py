"""How often `polyshot predict` warns that images look like nothing that a run was trained on.

    POLYSHOT_DATA=... OMP_NUM_THREADS=1 python -m benchmarks.familiarity

The network is that of the encoder `characters` (trained on Omniglot, validated on EMNIST's validation classes). No
warning is wanted for characters of other sets, one is for photographs. 300 random sets of 10, 26 and 55 images each,
with seed 1. The table is for docs/training.md.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from polyshot.data import load_scenario
from polyshot.encoders.trained import Characters
from polyshot.runs.familiarity import Familiarity, features_of, looks_strange, n_strange
from polyshot.runs.inputs import Intake, in_many_colours
from polyshot.runs.trained import load

CHARACTERS = ("omniglot-to-emnist", "omniglot-to-chars74k", "glyphs", "omniglot")
PHOTOGRAPHS = ("caltech101", "plantvillage", "cub")
SIZES, DRAWS = (10, 26, 55), 300


def photographs(name: str, intake_space: object, rng: np.random.Generator) -> tuple[Tensor, list[bool]]:
    """200 photographs, brought into the network's form as `polyshot predict` does, and which are in many colours."""
    with np.load(Path(os.environ["POLYSHOT_DATA"]) / f"{name}.npz") as file, TemporaryDirectory() as folder:
        ends, content, files = file["offsets"], file["jpeg"].tobytes(), []
        for row in rng.choice(len(file["labels"]), 200, replace=False):
            files.append(Path(folder) / f"{row}.jpg")
            files[-1].write_bytes(content[ends[row] : ends[row + 1]])
        return Intake.fitting(intake_space, files)(files), in_many_colours(files)  # type: ignore[arg-type]


def sets(space: object, rng: np.random.Generator) -> Iterator[tuple[str, Tensor, list[bool]]]:
    for name in CHARACTERS:
        classes = load_scenario(name).test
        rows = torch.from_numpy(rng.permutation(len(classes.x))[:2000])
        yield f"{name}, test classes", classes.transform(classes.x[rows], rng), [False] * len(rows)
    for name in PHOTOGRAPHS:
        yield name, *photographs(name, space, rng)


def main() -> None:
    run, rng = load(Characters.folder), np.random.default_rng(1)
    familiar = Familiarity.of(run.method, load_scenario(run.config.scenario), run.device)
    assert familiar is not None
    print("| images | strange | in colour | " + " | ".join(f"warned of {size}" for size in SIZES) + " |")
    print("|---|---:|---:|" + "---:|" * len(SIZES))
    for name, x, colours in sets(run.method.space, rng):
        p, colourful = familiar.p_values(features_of(run.method, x, run.device)), np.array(colours)
        warned = []
        for size in SIZES:
            draws = [rng.permutation(len(p))[:size] for _ in range(DRAWS)]
            warned.append(np.mean([looks_strange(p[rows]) or 2 * colourful[rows].sum() > size for rows in draws]))
        shares = [f"{n_strange(p) / len(p):.1%}", f"{colourful.mean():.1%}", *(f"{share:.0%}" for share in warned)]
        print(f"| {name} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
