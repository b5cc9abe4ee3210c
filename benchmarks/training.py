"""Time of one training episode of every method, and the share of it outside the backbone.

python -m benchmarks.training [--episodes 30] [--threads 2] [--only NAME] [--out benchmarks/results/training.json]

5-way 5-shot with 16 queries per class: 105 random 28x28 images, Conv4. A step is loss, backward and Adam. The methods
take turns, episode by episode, in one process, so that a busy machine slows all of them; medians are reported. With one
thread it is processor time, so that other processes do not count; otherwise wall time.
"backbone" is the forward and backward pass of the method's own backbone alone on the same images (for methods that
train on batches, on the batch of 16). MAML, ABML and Bayesian MAML run theirs several times per step, which counts as
outside. The rival is ProtoNet. Before that, ProtoNet's step on 28x28 and on 84x84 images is timed with freed memory
returned to the system and with it kept, and then in float32, in bfloat16, and in bfloat16 with fused blocks.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from polyshot.methods import METHODS, FewShotMethod, build_method
from polyshot.runs.precision import train_in_bfloat16
from polyshot.system.allocator import keep_freed_memory
from polyshot.task import Episode, LabelledSet, Space

ROWS = [(name, {}) for name in METHODS if name not in ("logistic-softmax-gp", "ove-gp")] + [
    (name, {"objective": objective}) for name in ("logistic-softmax-gp", "ove-gp") for objective in ("ml", "pl")
]
ROWS.append(("ove-gp", {"objective": "ml", "slope": "exact"}))
ROWS += [("ove-gp", {"objective": objective, "sites": "propagation"}) for objective in ("ml", "pl")]


CHARACTERS, PHOTOGRAPHS = Space((1, 28, 28), 1000), Space((3, 84, 84), 1000)


def random_episode(method: FewShotMethod, rng: np.random.Generator) -> Episode:
    def labelled(n_each: int) -> LabelledSet:
        x = torch.from_numpy(rng.random((5 * n_each, *method.space.shape), dtype=np.float32))
        return LabelledSet(x, torch.arange(5).repeat_interleave(n_each))

    if method.trains_on == "batches":
        x, y = labelled(4)
        return Episode(LabelledSet(x[:16], y[:16]), LabelledSet(x[:0], y[:0]), 5)
    return Episode(labelled(5), labelled(16), 5)


def milliseconds(function: Callable[[], object]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    function()
    return 1e3 * (clock() - start)


def backbone_pass(method: FewShotMethod, episode: Episode) -> None:
    features = method.backbone(torch.cat([episode.support.x, episode.query.x]))
    features.square().mean().backward()


def training_step(method: FewShotMethod, optimizer: torch.optim.Optimizer, episode: Episode, seed: int) -> None:
    optimizer.zero_grad()
    for losses in method.losses([episode], [np.random.default_rng(seed)]):
        losses.sum().backward()
    optimizer.step()


def measure(n_episodes: int, only: list[str] | None) -> dict[str, dict[str, float]]:
    methods = {
        " ".join([name, *options.values()]): build_method(name, CHARACTERS, options=options)
        for name, options in ROWS
        if only is None or name in (*only, "protonet")
    }
    optimizers = {name: torch.optim.Adam(m.parameter_groups(1e-3)) for name, m in methods.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for k in range(n_episodes + 2):
        for name, method in methods.items():
            episode = random_episode(method, np.random.default_rng(k))
            whole = milliseconds(partial(training_step, method, optimizers[name], episode, k))
            network = milliseconds(partial(backbone_pass, method, episode))
            if k >= 2:
                times[name].append((whole, network))
    table = {}
    for name, pairs in times.items():
        whole, network = (statistics.median(column) for column in zip(*pairs, strict=True))
        table[name] = {"step_ms": whole, "backbone_ms": network, "share_outside": max(0.0, 1 - network / whole)}
    for row in table.values():
        row["times_protonet"] = row["step_ms"] / table["protonet"]["step_ms"]
    return table


def measure_memory(n_episodes: int) -> dict[str, dict[str, float]]:
    """ProtoNet's step with freed memory returned to the system, and then, in the same process, with it kept."""
    methods = {str(space.shape[-1]): build_method("protonet", space) for space in (CHARACTERS, PHOTOGRAPHS)}
    table: dict[str, dict[str, float]] = {size: {} for size in methods}
    for memory in ("handed_back_ms", "kept_ms"):
        if memory == "kept_ms":
            keep_freed_memory()  # as `polyshot train` does; it holds from here on
        for size, method in methods.items():
            optimizer = torch.optim.Adam(method.parameters())
            episode = random_episode(method, np.random.default_rng(0))
            step = partial(training_step, method, optimizer, episode, 0)
            table[size][memory] = statistics.median([milliseconds(step) for _ in range(n_episodes + 2)][2:])
    return table


def measure_precision(n_episodes: int) -> dict[str, dict[str, float]]:
    """ProtoNet's step in float32, in bfloat16, and in bfloat16 with normalisation, pooling and ReLU in one step."""
    table: dict[str, dict[str, float]] = {}
    for space in (CHARACTERS, PHOTOGRAPHS):
        methods = {name: build_method("protonet", space) for name in ("float32_ms", "bfloat16_ms", "fused_ms")}
        train_in_bfloat16(methods["bfloat16_ms"].backbone, fuse=False)
        train_in_bfloat16(methods["fused_ms"].backbone)
        optimizers = {name: torch.optim.Adam(m.parameters()) for name, m in methods.items()}
        episode = random_episode(methods["fused_ms"], np.random.default_rng(0))
        times: dict[str, list[float]] = {name: [] for name in methods}
        for _ in range(n_episodes + 2):
            for name, method in methods.items():
                times[name].append(milliseconds(partial(training_step, method, optimizers[name], episode, 0)))
        table[str(space.shape[-1])] = {name: statistics.median(column[2:]) for name, column in times.items()}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="methods in addition to ProtoNet; default: all")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/training.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    memory = measure_memory(max(1, arguments.episodes // 3))
    for size, row in memory.items():
        print(
            f"{size}x{size}: {row['handed_back_ms']:.0f} ms with memory returned, {row['kept_ms']:.0f} ms with it kept"
        )
    precision = measure_precision(max(1, arguments.episodes // 3))
    for size, row in precision.items():
        print(f"{size}x{size}: " + ", ".join(f"{name.removesuffix('_ms')} {ms:.0f} ms" for name, ms in row.items()))
    table = measure(arguments.episodes, arguments.only)
    print(f"{'method':24}{'step ms':>10}{'backbone ms':>13}{'outside':>9}{'x ProtoNet':>12}")
    for name, row in table.items():
        print(
            f"{name:24}{row['step_ms']:10.1f}{row['backbone_ms']:13.1f}{row['share_outside']:9.0%}"
            f"{row['times_protonet']:12.2f}"
        )
    settings = {"threads": arguments.threads, "episodes": arguments.episodes}
    content = settings | {"memory": memory, "precision": precision, "methods": table}
    arguments.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
