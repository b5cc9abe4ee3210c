"""Park unfinished runs where git keeps them; a machine may be gone before a run of days has ended.

    python -m paper.park [PART OF A NAME...]

Copies the last checkpoints of runs/paper/PLACE/NAME to paper/parked/PLACE/NAME. `python -m paper.run` takes a parked
run up where it stopped, and deletes its parked copy when it has ended. Stop the training first.
"""

import argparse
import shutil
from pathlib import Path

from paper.run import CONFIGURATIONS, PARKED, RUNS, place_of, planned
from polyshot.runs.folder import RunFolder

FILES = ("config.json", "environment.json", "log.jsonl", "best.safetensors", "last.safetensors")


def park(folder: Path, to: Path) -> None:
    """Copy what a run needs to go on; kept weights of every validation are left out, because they are too large."""
    with RunFolder(folder).writing():
        to.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, to / name)


def main() -> None:
    """Park the interrupted runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=[""], help="only runs whose place and name contain one of these")
    given = parser.parse_args()
    for toml in sorted(CONFIGURATIONS.rglob("*.toml")):
        place = place_of(toml)
        if any(name in place.as_posix() for name in given.names) and planned(toml).state == "interrupted":
            park(RUNS / place, PARKED / place)
            print(f"{place.as_posix()}: parked")


if __name__ == "__main__":
    main()
