"""Is a difference between two methods their networks' or their heads'? Every head on every network.

    python -m benchmarks.heads RUN RUN [...] [--episodes 1000] [--out benchmarks/results/heads.json]

The runs are GP methods, trained on the same scenario of images. A head is all of a method but its network: kernel,
likelihood, inference. Its factor in prediction, where it has one, is chosen anew for each network, by 50 validation
episodes. All are asked the test episodes of the protocol "corruption", 5-shot, on clean images and under each
corruption at severity 5.
"""

import argparse
import copy
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from polyshot.data import CORRUPTIONS, ClassSet, EpisodeSampler
from polyshot.evaluation.evaluate import Run, open_runs
from polyshot.evaluation.predictions import predict_chunk
from polyshot.evaluation.protocols import Settings
from polyshot.evaluation.summaries import summarise
from polyshot.methods import FewShotMethod
from polyshot.methods.embedding import on_features

MEASURES = ("accuracy", "ece", "brier", "log_likelihood")
TO_CALIBRATE = 50


def conditions(test: ClassSet, settings: Settings) -> dict[str, ClassSet]:
    """The test images as they are, and corrupted."""
    corrupted = {name: test.corrupted(corruption=name, severity=5, seed=settings.seed) for name in CORRUPTIONS}
    return {"clean": test, **corrupted}


def with_network(head: Run, network: Run, settings: Settings) -> FewShotMethod:
    """The head's method on the other network, calibrated there."""
    method = copy.deepcopy(head.method)
    method.backbone = network.method.backbone
    bare, features = on_features(method, network.scenario.validation)
    sampler = EpisodeSampler(features, settings.ways, settings.shots, settings.queries, settings.seed)
    bare.calibrate([sampler[k] for k in range(TO_CALIBRATE)])
    return method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/heads.json"))
    given = parser.parse_args()
    runs = open_runs(given.runs, None, None, None, False)
    settings = Settings("corruption", 1, given.episodes, ways=5, shots=5, queries=15, seed=0)
    test_sets = conditions(runs[0].scenario.test, settings)
    table, rows = Table("network", "head", "images", *MEASURES), []
    for network in runs:
        for head in runs:
            method = with_network(head, network, settings)
            for name, images in test_sets.items():
                bare, features = on_features(method, images)
                (sampler,) = settings.samplers(features)
                predicted = predict_chunk(bare, sampler, range(given.episodes))
                labels = sampler.indices(0).query_y.numpy()
                figures = summarise(predicted["log_probs"].numpy(), predicted["scores"].numpy(), labels, 1)["summary"]
                values = {measure: figures[measure]["value"] for measure in MEASURES}
                rows.append({"network": network.name, "head": head.name, "images": name, **values})
                table.add_row(network.name, head.name, name, *(f"{value:.4f}" for value in values.values()))
    Console(width=120).print(table)
    given.out.write_text(json.dumps({"episodes": given.episodes, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
