"""Kernels, objectives and scores for unknown classes on frozen features, where training is a minute's work.

    python -m benchmarks.frozen_features embeddings:cub_efficientnet [--shots 1 5] [--episodes 300] [--out FILE]

Each row learns its kernel from 400 training episodes (seed 0), its factor from 50 validation episodes, and is tested
on `--episodes` test episodes with 15 queries per class. Then 5 more classes of queries join each episode, for the
mean AUROC of each score for "none of these", with its 95 % interval.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyshot.data import EpisodeSampler, load_scenario
from polyshot.data.scenarios import Scenario
from polyshot.evaluation.metrics import (
    accuracy,
    auroc_per_episode,
    expected_calibration_error,
    log_likelihood_of_logs,
    mean_interval,
)
from polyshot.methods import FewShotMethod, build_method
from polyshot.methods.protonet import negative_distances, prototypes
from polyshot.task import Episode, Prediction, Space

N_WAY, N_QUERY, N_TRAINING, N_VALIDATION = 5, 15, 400, 50
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "cosine": ("ove-gp", {"kernel": "cosine"}),
    "cosine, propagation": ("ove-gp", {"sites": "propagation", "kernel": "cosine"}),
    "rbf, propagation": ("ove-gp", {"sites": "propagation", "kernel": "rbf"}),
    "normalized-rbf, propagation": ("ove-gp", {"sites": "propagation", "kernel": "normalized-rbf"}),
    "cosine-rbf": ("ove-gp", {"kernel": "cosine-rbf"}),
    "protonet": ("protonet", {}),
    "matchingnet": ("matchingnet", {"fce": False}),
}
OUTLIER_ROWS = ("cosine, propagation", "normalized-rbf, propagation", "protonet", "matchingnet")


def trained(row: str, scenario: Scenario, shots: int) -> FewShotMethod:
    """The row's method with its kernel learned."""
    torch.manual_seed(0)
    name, options = ROWS[row]
    classes = scenario.train
    method = build_method(name, Space(tuple(classes.x.shape[1:]), len(classes.class_names)), options=options)
    if method.learns:
        optimizer = torch.optim.Adam(method.parameter_groups(1e-3))
        sampler = EpisodeSampler(classes, N_WAY, shots, N_QUERY, seed=0)
        for k in range(N_TRAINING):
            optimizer.zero_grad()
            for losses in method.losses([sampler[k]], [np.random.default_rng((0, k))]):
                losses.sum().backward()
            optimizer.step()
    validation = EpisodeSampler(scenario.validation, N_WAY, shots, N_QUERY, seed=1)
    method.calibrate([validation[k] for k in range(N_VALIDATION)])
    return method


def predicted(method: FewShotMethod, episodes: list[Episode]) -> list[Prediction]:
    """The predictions, 20 episodes at a time to bound the memory."""
    parts = [range(k, min(k + 20, len(episodes))) for k in range(0, len(episodes), 20)]
    return [p for part in parts for p in method.predict_episodes([episodes[k] for k in part], part)]


def classification(method: FewShotMethod, scenario: Scenario, shots: int, n_episodes: int) -> dict[str, float]:
    sampler = EpisodeSampler(scenario.test, N_WAY, shots, N_QUERY, seed=2)
    episodes = [sampler[k] for k in range(n_episodes)]
    log_probs = [p.log_probs.double().numpy() for p in predicted(method, episodes)]
    labels = [e.query.y.numpy() for e in episodes]
    each = mean_interval(np.array([accuracy(np.exp(p), y) for p, y in zip(log_probs, labels, strict=True)]))
    together, all_labels = np.concatenate(log_probs), np.concatenate(labels)
    return {
        "accuracy": each.estimate,
        "half_width": (each.high - each.low) / 2,
        "ece": expected_calibration_error(np.exp(together), all_labels),
        "log_likelihood": log_likelihood_of_logs(together, all_labels),
    }


@torch.no_grad()
def detection(method: FewShotMethod, scenario: Scenario, shots: int, n_episodes: int) -> dict[str, list[float]]:
    """AUROC of every score that the method has: mean, and half its 95 % interval."""
    sampler = EpisodeSampler(scenario.test, N_WAY, shots, N_QUERY, seed=3, n_extra_way=N_WAY)
    episodes = [sampler[k] for k in range(n_episodes)]
    predictions = predicted(method, episodes)
    scores: dict[str, list[Tensor]] = {}

    def add(name: str, values: Tensor | None) -> None:
        if values is not None:
            scores.setdefault(name, []).append(values)

    for episode, prediction in zip(episodes, predictions, strict=True):
        add("-max logit", -prediction.scores.amax(-1))
        add("entropy", -(prediction.log_probs.exp() * prediction.log_probs).sum(-1))
        add("variance", prediction.variance)
        add("extra-class", prediction.outlier)
        support, query = episode.support, episode.query
        x, z = (method.backbone(part.x).float() for part in (support, query))
        add("nearest prototype", -negative_distances(z, prototypes(x, support.y, N_WAY)).amax(-1))
    if hasattr(method, "outlier"):
        method.outlier = "sum"
        for prediction in predicted(method, episodes):
            add("sum", prediction.outlier)
        method.outlier = "extra-class"
    outside = torch.stack([e.query.y < 0 for e in episodes]).numpy()
    table = {}
    for name, values in scores.items():
        interval = mean_interval(auroc_per_episode(torch.stack(values).numpy(), outside))
        table[name] = [interval.estimate, (interval.high - interval.low) / 2]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    scenario = load_scenario(arguments.scenario)
    content: dict[str, Any] = {}
    for shots in arguments.shots:
        for row in ROWS:
            method = trained(row, scenario, shots)
            result: dict[str, Any] = classification(method, scenario, shots, arguments.episodes)
            print(
                f"{shots}-shot {row:30} {100 * result['accuracy']:6.2f} ± {100 * result['half_width']:.2f} %"
                f"  ECE {result['ece']:.3f}  log-likelihood {result['log_likelihood']:.3f}",
                flush=True,
            )
            if row in OUTLIER_ROWS:
                result["auroc"] = detection(method, scenario, shots, arguments.episodes)
                print("   AUROC", *(f"{n} {v:.3f} ± {h:.3f};" for n, (v, h) in result["auroc"].items()), flush=True)
            content[f"{shots}-shot {row}"] = result
    if arguments.out:
        arguments.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
