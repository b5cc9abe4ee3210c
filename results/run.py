"""Train and evaluate every run that has a TOML file here; what is done is skipped, what was interrupted goes on.

python results/run.py [PART OF A NAME...] [--jobs 2]

results/PLACE/NAME.toml is trained in runs/results/PLACE/NAME (one thread) and evaluated by the paper's protocols into
results/PLACE/NAME/*.json, with the training log beside them; accuracy and calibration also with a temperature that is
fitted on validation episodes, which is the least that a rival's user would do. Runs of 5 shots are also asked at one
shot, in results/PLACE-at-1-shot. Two jobs at a time use two cores best.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from polyshot.evaluation.protocols import Changes, plan
from polyshot.evaluation.results import find_results
from polyshot.runs.config import TrainingConfig, read_toml

HERE = Path(__file__).parent
RUNS = HERE.parent / "runs" / "results"


def protocols(toml: Path) -> list[str]:
    """Corruption is for photographs."""
    return ["accuracy", "out-of-episode", *(["corruption"] if read_toml(toml)["scenario"] == "cub" else [])]


def at_one_shot(toml: Path) -> list[Path]:
    """Where the results at one shot go of a run of more."""
    return [toml.parent.with_name(f"{toml.parent.name}-at-1-shot")] if read_toml(toml)["shots"] > 1 else []


def finished(toml: Path) -> bool:
    """Whether all its results are there, of a run with these settings."""
    values, folder = read_toml(toml), toml.with_suffix("")
    others = [place / toml.stem / "accuracy.json" for place in at_one_shot(toml)]
    config = TrainingConfig.from_mapping(values, str(toml))
    names = [settings.name for protocol in protocols(toml) for settings in plan(protocol, config, Changes())]
    names.append("accuracy-temperature")
    files = [*(folder / f"{name}.json" for name in names), *others]
    if not all(file.is_file() for file in files):
        return False
    results = find_results(files)
    options = values.pop("options", {})
    return len({r.weights for r in results}) == 1 and all(
        values.items() <= r.training.items() and options.items() <= r.training["options"].items() for r in results
    )


def execute(toml: Path) -> str:
    """Train and evaluate; returns what went wrong, if anything did."""
    place = toml.relative_to(HERE).with_suffix("")
    run, out = RUNS / place, toml.parent
    run.parent.mkdir(parents=True, exist_ok=True)
    others = [word for protocol in protocols(toml) if protocol != "accuracy" for word in ("--protocol", protocol)]
    start = time.monotonic()
    print(f"{place}: started", flush=True)
    with run.with_suffix(".log").open("a", encoding="utf-8") as log:
        for command in (
            ["train", str(toml), "--out", str(run), "--threads", "1"],
            ["evaluate", str(run), "--out", str(out), "--protocol", "accuracy", "--temperature"],
            ["evaluate", str(run), "--out", str(out), *others],
            *(
                ["evaluate", str(run), "--out", str(place), "--protocol", "accuracy", "--shots", "1"]
                for place in at_one_shot(toml)
            ),
        ):
            words = [sys.executable, "-m", "polyshot", *command]
            done = subprocess.run(words, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
            if done.returncode:
                return f"{place}: polyshot {command[0]} failed; {log.name} says why"
    shutil.copy(run / "log.jsonl", out / run.name / "log.jsonl")  # which tells results/page.py that all is there
    print(f"{place}: done in {(time.monotonic() - start) / 60:.1f} min", flush=True)
    return ""


def main() -> None:
    """Run what is asked for and not done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only runs whose place and name contain one of these, in this order")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    files = sorted(HERE.rglob("*.toml"))
    parts = given.names or [""]
    chosen = list(dict.fromkeys(f for part in parts for f in files if part in str(f.relative_to(HERE))))
    waiting = [f for f in chosen if not finished(f)]
    print(f"{len(chosen)} runs, {len(chosen) - len(waiting)} done", flush=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        failures = [text for text in pool.map(execute, waiting) if text]
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
