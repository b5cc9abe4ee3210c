"""Train and evaluate the paper's runs as one sweep. Finished ones are skipped, interrupted ones continue.

    python -m paper.run [PART OF A NAME...] [--jobs 2] [--launcher local]

paper/runs/PLACE/NAME.toml is trained in runs/paper/PLACE/NAME (one thread) and evaluated by the paper's protocols. What
the tables need of the results goes to paper/results/PLACE/NAME, and a run that has all of it there is finished.
Accuracy and calibration are also computed with a temperature fitted on validation episodes, which is the least that the
user of a rival method would do. Runs trained on more than one shot are also evaluated at one shot, in
paper/results/PLACE-at-1-shot. One job per core is fastest. A run that `paper.park` has parked goes on from there.
"""

import argparse
import shutil
import sys
from pathlib import Path

from polyshot.data import load_scenario
from polyshot.evaluation.results import find_results, read_result, write_result
from polyshot.evaluation.sweep import Evaluation, PlannedRun, Sweep
from polyshot.runs.config import read_toml

ROOT = Path(__file__).parents[1]
CONFIGURATIONS, RESULTS, RUNS = ROOT / "paper" / "runs", ROOT / "paper" / "results", ROOT / "runs" / "paper"
PARKED = ROOT / "paper" / "parked"
# Runs that came before the benchmarks. They corrupt whole images, and keep per-episode figures for paired comparisons.
LAB_NOTES = ("cub-features", "cub-short")
PAIRED = {  # by protocol
    "accuracy": ("accuracy", "brier", "log_likelihood"),
    "out-of-episode": ("auroc",),
    "corruption": ("accuracy", "brier"),
}


def place_of(toml: Path) -> Path:
    """PLACE/NAME of a run."""
    return toml.relative_to(CONFIGURATIONS).with_suffix("")


def planned(toml: Path) -> PlannedRun:
    """The run of a TOML file, and its evaluations; photographs are also corrupted, as by the paper's code."""
    values, place = read_toml(toml), place_of(toml)
    evaluations = [Evaluation(temperature=True), Evaluation(["out-of-episode"])]
    if load_scenario(values["scenario"]).kind == "natural":
        evaluations.append(Evaluation(["corruption"], crops=place.parts[0] not in LAB_NOTES))
    if values["shots"] > 1:
        evaluations.append(Evaluation(shots=1, out="at-1-shot"))
    return PlannedRun.checked(place.as_posix(), values, evaluations, RUNS, str(toml))


def kept(run: PlannedRun) -> dict[Path, Path]:
    """The results of a run, and where what the tables need of each goes."""
    files: dict[Path, Path] = {}
    for evaluation in run.evaluations:
        place = Path(run.name) if evaluation.out is None else at_one_shot(Path(run.name))
        files |= {file: RESULTS / place / file.name for file in run.results(evaluation)}
    return files


def at_one_shot(place: Path) -> Path:
    """Where the results at one shot go."""
    return place.parent.with_name(f"{place.parent.name}-at-1-shot") / place.name


def is_finished(toml: Path) -> bool:
    """Whether all results are there and come from a run with these settings."""
    files = list(kept(planned(toml)).values())
    if not all(file.is_file() for file in files):
        return False
    values, results = read_toml(toml), find_results(files)
    options = values.pop("options", {})
    return len({r.weights for r in results}) == 1 and all(
        values.items() <= r.training.items() and options.items() <= r.training["options"].items() for r in results
    )


def take_up(place: str) -> None:
    """Copy a parked run to where it goes on, unless it is there already."""
    if (PARKED / place).is_dir() and not (RUNS / place).exists():
        shutil.copytree(PARKED / place, RUNS / place)


def keep(run: PlannedRun) -> None:
    """Keep what the tables need."""
    for source, target in kept(run).items():
        result = read_result(source)
        plain = result.temperature is None and result.settings.shots == result.training["shots"]
        paired = plain and Path(run.name).parts[0] in LAB_NOTES
        write_result(target, result.slim(PAIRED[result.protocol] if paired else ()))
    shutil.rmtree(PARKED / run.name, ignore_errors=True)
    print(f"{run.name}: done", flush=True)


def main() -> None:
    """Run what is asked for and not finished."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only runs whose place and name contain one of these, in this order")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--launcher", default="local", help="where to run: local, slurm or ray")
    given = parser.parse_args()
    files = sorted(CONFIGURATIONS.rglob("*.toml"))
    parts = given.names or [""]
    chosen = list(dict.fromkeys(f for part in parts for f in files if part in f.relative_to(CONFIGURATIONS).as_posix()))
    for file in chosen:
        take_up(place_of(file).as_posix())
    waiting = [planned(file) for file in chosen if not is_finished(file)]
    print(f"{len(chosen)} runs, {len(chosen) - len(waiting)} finished", flush=True)
    failed = []
    for run in waiting:
        if run.state == "finished":
            keep(run)
    unfinished = tuple(run for run in waiting if run.state != "finished")
    for run, failure in Sweep(RUNS, unfinished).execute(given.launcher, given.jobs) if unfinished else ():
        if failure is None:
            keep(run)
        else:
            failed.append(f"{run.name}: {failure}; {run.log} says more")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
