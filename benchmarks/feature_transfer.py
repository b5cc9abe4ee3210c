"""Feature Transfer's new layer beside the recipe of its authors' code, on the same frozen features.

POLYSHOT_DATA=../shared/data python -m benchmarks.feature_transfer [--tasks 200]

The recipe: `torch.nn.Linear` from its random start, trained by `torch.optim.SGD`. Ours starts at zero and descends in
NumPy. 5-way tasks of CUB's test classes as EfficientNet features, 15 queries per class; differences are paired.
"""

import argparse

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from polyshot.data import EpisodeSampler, load_scenario
from polyshot.methods.feature_transfer import FeatureTransfer
from polyshot.task import Episode, Space


def recipe(episode: Episode, seed: int) -> Tensor:
    """The scores of the recipe."""
    torch.manual_seed(seed)
    x, y = episode.support
    layer = torch.nn.Linear(x.shape[1], episode.n_way)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, dampening=0.9, weight_decay=0.001)
    for _ in range(100):
        for rows in torch.randperm(len(x)).split(4):
            optimizer.zero_grad()
            cross_entropy(layer(x[rows]), y[rows]).backward()
            optimizer.step()
    return layer(episode.query.x).detach()


def figures(scores: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy in points and log-likelihood."""
    return 100 * float((scores.argmax(-1) == y).double().mean()), -float(cross_entropy(scores, y))


def main() -> None:
    """Print a line per number of shots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=200)
    n_tasks = parser.parse_args().tasks
    torch.set_num_threads(1)
    classes = load_scenario("embeddings:cub_efficientnet").test
    method = FeatureTransfer(Space(tuple(classes.x.shape[1:]), 5), torch.nn.Identity())
    for shots in (5, 1):
        sampler = EpisodeSampler(classes, 5, shots, 15, 2**31)
        both = []
        for k in range(n_tasks):
            episode = sampler[k]
            ours = method.fit(*episode.support, 5, np.random.default_rng(k))(episode.query.x)
            both.append([figures(scores, episode.query.y) for scores in (ours, recipe(episode, k))])
        table = np.array(both)
        difference = table[:, 0] - table[:, 1]
        margin = 1.96 * difference.std(0, ddof=1) / np.sqrt(n_tasks)
        for column, name in enumerate(("accuracy, %", "log-likelihood")):
            a, b = table[:, :, column].mean(0)
            d, m = difference[:, column].mean(), margin[column]
            print(f"{shots}-shot {name}: ours {a:.3f}, recipe {b:.3f}, difference {d:+.3f} +- {m:.3f}", flush=True)


if __name__ == "__main__":
    main()
