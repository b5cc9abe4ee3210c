"""Scores for queries of unknown classes, on trained runs: mean AUROC with half its 95 % interval.

python -m benchmarks.outlier_scores RUN [RUN ...] --scenario omniglot-to-emnist [--shots 1 5] [--episodes 150]

5 known and 5 unknown test classes of the scenario per episode, 15 queries each.
"""

import argparse
from pathlib import Path

from benchmarks.frozen_features import detection
from polyshot.data import load_scenario
from polyshot.runs.trained import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--episodes", type=int, default=150)
    arguments = parser.parse_args()
    scenario = load_scenario(arguments.scenario)
    for run in arguments.runs:
        method = load(run).method.eval()
        for shots in arguments.shots:
            scores = detection(method, scenario, shots, arguments.episodes)
            print(f"{run.name} {shots}-shot", *(f"{n} {v:.3f} ± {h:.3f};" for n, (v, h) in scores.items()), flush=True)


if __name__ == "__main__":
    main()
