"""How hard is `glyphs`? Nearest centroid on pixels against a Conv4 prototypical network, test scripts.

python -m benchmarks.glyphs --episodes 400 --out glyphs.json
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from polyshot.data import EpisodeSampler, load_scenario
from polyshot.methods.backbones import Conv4
from polyshot.task import Episode


def log_probs(features_of: torch.nn.Module, episode: Episode) -> torch.Tensor:
    """[Q, C] of a prototypical network: minus the squared distances to the class means, normalised."""
    support, query = episode.support, episode.query
    z = features_of(torch.cat([support.x, query.x]))
    centroids = torch.stack([z[: len(support.y)][support.y == c].mean(0) for c in range(episode.n_way)])
    return F.log_softmax(-(torch.cdist(z[len(support.y) :], centroids) ** 2), dim=1)


def accuracy(features_of: torch.nn.Module, sampler: EpisodeSampler, n_episodes: int) -> tuple[float, float]:
    """Mean accuracy over episodes 0..n-1, and half its 95 % interval."""
    with torch.no_grad():
        right = [
            (log_probs(features_of, e).argmax(1) == e.query.y).float().mean()
            for e in map(sampler.__getitem__, range(n_episodes))
        ]
    values = torch.stack(right)
    return float(values.mean()), float(1.96 * values.std() / n_episodes**0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--scenario", default="glyphs")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    scenario = load_scenario(args.scenario)
    test = EpisodeSampler(scenario.test, 5, 5, 15, seed=1)
    pixels, pixels_half = accuracy(torch.nn.Flatten(), test, 600)
    network = Conv4(1)
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    train = EpisodeSampler(scenario.train, 5, 5, 16, seed=0)
    start = time.perf_counter()
    for k in range(args.episodes):
        episode = train[k]
        loss = F.nll_loss(log_probs(network, episode), episode.query.y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    seconds = time.perf_counter() - start
    network.eval()
    learned, learned_half = accuracy(network, test, 600)
    result = {
        "scenario": args.scenario,
        "training_episodes": args.episodes,
        "training_seconds": round(seconds, 1),
        "nearest_centroid_on_pixels": [round(pixels, 4), round(pixels_half, 4)],
        "prototypical_network": [round(learned, 4), round(learned_half, 4)],
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
