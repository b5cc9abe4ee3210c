"""Do two methods differ because of their networks or because of their heads? Try every head on every network.

    python -m benchmarks.heads RUN RUN [...] [--episodes 1000] [--more 0 3] [--out benchmarks/results/heads.json]

The runs are GP methods, trained on the same scenario of images. A head is everything in a method except its network:
kernel, likelihood, inference. If the head has a prediction factor, it is chosen again for each network by 50
validation episodes, and then multiplied by exp(more). All are evaluated on the test episodes of the protocol
"corruption", 5-shot, on clean images and under each corruption at severity 5. "cosine" is the mean cosine between the
features of two images.
"""

import argparse
import copy
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import nn

from polyshot.data import CORRUPTIONS, ClassSet, EpisodeSampler
from polyshot.evaluation.measures import Predictions
from polyshot.evaluation.outputs import predict_chunk
from polyshot.evaluation.protocols import ProtocolSettings
from polyshot.evaluation.summaries import summarise
from polyshot.evaluation.tested_run import TestedRun, open_runs
from polyshot.gp import unit_rows
from polyshot.methods import FewShotMethod
from polyshot.runs.features import on_features
from polyshot.runs.validation import TO_CALIBRATE

MEASURES = ("accuracy", "ece", "brier", "log_likelihood")


def heads_on(
    network: TestedRun, runs: Sequence[TestedRun], settings: ProtocolSettings, more: Sequence[float]
) -> dict[str, FewShotMethod]:
    """The head of every run, calibrated on the features of this network."""
    _, validation = on_features(network.method, network.scenario.validation)
    sampler = EpisodeSampler(validation, settings.ways, settings.shots, settings.queries, settings.seed)
    episodes = [sampler[k] for k in range(TO_CALIBRATE)]
    heads = {}
    for run in runs:
        head = copy.deepcopy(run.method)
        head.backbone = nn.Identity()
        head.calibrate(episodes)
        for step in more if getattr(head, "log_factor", None) is not None else (0.0,):
            variant = copy.deepcopy(head)
            if step:  # heads without a factor only have the step 0
                variant.log_factor += step
            heads[run.name + (f", factor x exp({step:g})" if step else "")] = variant
    return heads


def figures(head: FewShotMethod, features: ClassSet, settings: ProtocolSettings) -> dict[str, float]:
    (sampler,) = settings.samplers(features)
    predicted = predict_chunk(head, sampler, range(settings.episodes))
    labels = sampler.indices(0).query_y.numpy()
    arrays = predicted["log_probs"].numpy(), predicted["scores"].numpy()
    summary = summarise(Predictions(*arrays, labels), 1).summary
    return {measure: summary[measure].estimate for measure in MEASURES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--more", type=float, nargs="+", default=[0.0, 3.0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/heads.json"))
    given = parser.parse_args()
    runs = open_runs(given.runs, None, None, None, False)
    settings = ProtocolSettings("corruption", 1, given.episodes, ways=5, shots=5, queries=15, seed=0)
    test = runs[0].scenario.test
    images = {"clean": test} | {name: test.corrupted(name, severity=5, seed=settings.seed) for name in CORRUPTIONS}
    table, rows = Table("network", "images", "cosine", "head", *MEASURES), []
    for network in runs:
        heads = heads_on(network, runs, settings, given.more)
        for name, class_set in images.items():
            _, features = on_features(network.method, class_set)
            cosine = unit_rows(features.x).mean(0).square().sum().item()
            for head, method in heads.items():
                values = {"cosine": cosine, **figures(method, features, settings)}
                rows.append({"network": network.name, "images": name, "head": head, **values})
                first, *others = (f"{value:.4f}" for value in values.values())
                table.add_row(network.name, name, first, head, *others)
    Console(width=140).print(table)
    given.out.write_text(json.dumps({"episodes": given.episodes, "more": given.more, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
