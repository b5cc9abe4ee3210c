"""Train and evaluate the paper's runs. Finished ones are skipped, interrupted ones continue.

    python -m paper.run [PART OF A NAME...] [--jobs 2]

paper/runs/PLACE/NAME.toml is trained in runs/paper/PLACE/NAME (one thread) and evaluated by the paper's protocols. What
the tables need of the results goes to paper/results/PLACE/NAME. Accuracy and calibration are also computed with a
temperature fitted on validation episodes, which is the least that the user of a rival method would do. Runs trained on
more than one shot are also evaluated at one shot, in paper/results/PLACE-at-1-shot. One job per core is fastest.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from polyshot.data import load_scenario
from polyshot.errors import TrainingError
from polyshot.evaluation.protocols import Changes, plan
from polyshot.evaluation.results import find_results, read_result, write_result
from polyshot.runs.config import TrainingConfig, read_toml
from polyshot.system.parallel import map_unordered

ROOT = Path(__file__).parents[1]
CONFIGURATIONS, RESULTS, RUNS = ROOT / "paper" / "runs", ROOT / "paper" / "results", ROOT / "runs" / "paper"
# Per-episode figures that a paired comparison on the page needs, by protocol; the others are left out.
PAIRED = {
    "accuracy": ("accuracy", "brier", "log_likelihood"),
    "out-of-episode": ("auroc",),
    "corruption": ("accuracy", "brier"),
}


def protocols(toml: Path) -> list[str]:
    """The protocols of a run; corruptions are for photographs."""
    kind = load_scenario(read_toml(toml)["scenario"]).kind
    return ["accuracy", "out-of-episode", *(["corruption"] if kind == "natural" else [])]


def place_of(toml: Path) -> Path:
    """PLACE/NAME of a run."""
    return toml.relative_to(CONFIGURATIONS).with_suffix("")


def result_files(toml: Path) -> list[Path]:
    """All results that a finished run has."""
    config = TrainingConfig.from_mapping(read_toml(toml), str(toml))
    place = place_of(toml)
    names = [settings.name for protocol in protocols(toml) for settings in plan(protocol, config, Changes())]
    files = [RESULTS / place / f"{name}.json" for name in (*names, "accuracy-temperature")]
    return files + ([RESULTS / at_one_shot(place) / "accuracy.json"] if config.shots > 1 else [])


def at_one_shot(place: Path) -> Path:
    """Where the results at one shot go."""
    return place.parent.with_name(f"{place.parent.name}-at-1-shot") / place.name


def is_finished(toml: Path) -> bool:
    """Whether all results are there and come from a run with these settings."""
    files = result_files(toml)
    if not all(file.is_file() for file in files):
        return False
    values, results = read_toml(toml), find_results(files)
    options = values.pop("options", {})
    return len({r.weights for r in results}) == 1 and all(
        values.items() <= r.training.items() and options.items() <= r.training["options"].items() for r in results
    )


def execute(toml: Path) -> None:
    """Train and evaluate a run, and keep what the tables need."""
    place = place_of(toml)
    run = RUNS / place
    run.parent.mkdir(parents=True, exist_ok=True)
    others = [word for protocol in protocols(toml) if protocol != "accuracy" for word in ("--protocol", protocol)]
    commands = [
        ["train", str(toml), "--out", str(run), "--threads", "1"],
        ["evaluate", str(run), "--out", str(run.parent / "results"), "--protocol", "accuracy", "--temperature"],
        ["evaluate", str(run), "--out", str(run.parent / "results"), *others],
    ]
    if read_toml(toml)["shots"] > 1:
        one_shot = str(RUNS / at_one_shot(place).parent / "results")
        commands.append(["evaluate", str(run), "--out", one_shot, "--protocol", "accuracy", "--shots", "1"])
    start = time.monotonic()
    print(f"{place}: started", flush=True)
    with run.with_suffix(".log").open("a", encoding="utf-8") as log:
        for command in commands:
            words = [sys.executable, "-m", "polyshot", *command]
            done = subprocess.run(words, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
            if done.returncode:
                raise TrainingError(f"{place}: `polyshot {command[0]}` failed; {log.name} says why")
    for file in result_files(toml):
        folder, name = file.parent.relative_to(RESULTS), file.name
        result = read_result(RUNS / folder.parent / "results" / folder.name / name)
        plain = result.temperature is None and result.settings.shots == result.training["shots"]
        write_result(file, result.slim(PAIRED[result.protocol] if plain else ()))
    print(f"{place}: done in {(time.monotonic() - start) / 60:.1f} min", flush=True)


def main() -> None:
    """Run what is asked for and not finished."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only runs whose place and name contain one of these, in this order")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    given = parser.parse_args()
    files = sorted(CONFIGURATIONS.rglob("*.toml"))
    parts = given.names or [""]
    chosen = list(dict.fromkeys(f for part in parts for f in files if part in f.relative_to(CONFIGURATIONS).as_posix()))
    waiting = [f for f in chosen if not is_finished(f)]
    print(f"{len(chosen)} runs, {len(chosen) - len(waiting)} finished", flush=True)
    for _ in map_unordered(execute, waiting, given.jobs):
        pass


if __name__ == "__main__":
    main()
