"""What an episode costs beside the network that it feeds: sampling and transform against Conv4's step.

python -m benchmarks.episodes --out episodes.json

One thread, 5-way 5-shot with 16 queries a class (105 images): 28x28 characters, and 84x84 photographs with
the training augmentation. The ratio for characters is to be below 5 %. Images are random: none is needed.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from polyshot.data import ClassSet, EpisodeSampler
from polyshot.data.transforms import NaturalTrain, Transform, scale_characters
from polyshot.methods.backbones import Conv4


def median_ms(function: Callable[[int], object], repeats: int) -> float:
    """Median milliseconds of function(0), function(1), ..., after one call to warm up."""
    function(0)
    times = []
    for k in range(repeats):
        start = time.perf_counter()
        function(k)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def measure(shape: tuple[int, int, int], n_classes: int, n_each: int, transform: Transform, repeats: int) -> dict:
    """Milliseconds to draw an episode and to run Conv4 forward and backward on it, in both memory layouts."""
    x = torch.randint(0, 256, (n_classes * n_each, *shape), dtype=torch.uint8)
    y = torch.arange(n_classes).repeat_interleave(n_each)
    class_set = ClassSet("random", x, y, tuple(map(str, range(n_classes))), transform)
    sampler = EpisodeSampler(class_set, 5, 5, 16, seed=0)
    network = Conv4(shape[0])
    plain = Conv4(shape[0])
    plain.blocks.to(memory_format=torch.contiguous_format)
    batch = torch.cat([sampler[0].support.x, sampler[0].query.x])

    def step(k: int) -> None:
        network(batch).square().mean().backward()

    def plain_step(k: int) -> None:
        plain.blocks(batch).square().mean().backward()

    episode, index = median_ms(sampler.__getitem__, repeats), median_ms(sampler.indices, repeats)
    conv4, contiguous = median_ms(step, repeats), median_ms(plain_step, repeats)
    return {
        "indices_ms": round(index, 3),
        "episode_ms": round(episode, 3),
        "conv4_step_ms": round(conv4, 2),
        "conv4_step_without_channels_last_ms": round(contiguous, 2),
        "episode_over_conv4_step": round(episode / conv4, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results = {
        "characters 28x28": measure((1, 28, 28), 1597, 21, scale_characters, 30),
        "photographs 84x84, augmented": measure((3, 84, 84), 100, 60, NaturalTrain(), 5),
    }
    for name, result in results.items():
        print(f"{name}: {result}")
        print(f"  episode / Conv4 step = {100 * result['episode_over_conv4_step']:.1f} %")
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
