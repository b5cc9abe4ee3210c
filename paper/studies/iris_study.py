"""All sizes and splits of the Iris experiment, in parallel processes and in parts that survive an interruption."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from paper.studies.compared import RIVALS
from paper.studies.iris import N_EACH, Effort, solve_split
from paper.studies.output import Row, make_folder, write_json
from polyshot.errors import InputError
from polyshot.evaluation.metrics import mean_interval
from polyshot.system.parallel import map_unordered
from polyshot.system.progress import Progress
from polyshot.system.threads import one_thread

PAPER_SIZES = (1, 2, 3, 4, 5, 10, 15, 20, 25, 30)
SCORES = ("accuracy", "brier", "ece")
RULES = ("mean", "full")
_PART = 10  # splits per part

Rows = dict[str, list[Row]]
Part = tuple[int, int, int]  # size, first split, last split (exclusive)


@dataclass(frozen=True)
class IrisSettings:
    """What is run. The results depend on nothing else."""

    sizes: tuple[int, ...] = PAPER_SIZES
    n_splits: int = 200
    seed: int = 0
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        """Refuse sizes that Iris does not have."""
        if not self.sizes or len(set(self.sizes)) < len(self.sizes):
            raise InputError(f"sizes must be different numbers of examples per class, not {self.sizes}")
        if wrong := [size for size in self.sizes if not 1 <= size < N_EACH]:
            raise InputError(f"Iris has {N_EACH} examples per class: sizes are 1 to {N_EACH - 1}, not {wrong}")
        if self.n_splits < 2 or self.seed < 0:
            raise InputError(f"need at least 2 splits and a seed >= 0, not {self.n_splits} and {self.seed}")

    def parts(self) -> list[Part]:
        """All parts; the first splits of all sizes come first."""
        starts = range(0, self.n_splits, _PART)
        return [(size, k, min(k + _PART, self.n_splits)) for k in starts for size in sorted(self.sizes, reverse=True)]

    def fingerprint(self) -> str:
        """A name for seed and effort, so that parts with other settings are never mixed."""
        text = json.dumps([self.seed, asdict(self.effort)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


def run_study(out: Path, settings: IrisSettings, n_workers: int = 1, *, quiet: bool = True) -> Rows:
    """Rows of all splits. Finished parts are files under `out`, so the same call resumes after an interruption."""
    if n_workers < 1:
        raise InputError(f"n_workers must be at least 1, not {n_workers}")
    folder = make_folder(out / "parts" / settings.fingerprint())
    parts = settings.parts()
    waiting = [part for part in parts if not _file(folder, part).exists()]
    done = len(parts) - len(waiting)
    with Progress("Iris, parts", len(parts), done, quiet=quiet) as progress:
        for _ in map_unordered(partial(_write_part, folder, settings), waiting, n_workers):
            done += 1
            progress.update(done)
    rows: Rows = {"predictions": [], "bounds": [], "diagnostics": []}
    for part in sorted(parts):
        for kind, new in json.loads(_file(folder, part).read_text("utf-8")).items():
            rows[kind] += new
    return rows


def summarise(rows: Rows) -> list[Row]:
    """Mean and 95 % interval over the splits; one row per score, bound and divergence."""
    return [
        {"size": size, "method": method, "rule": rule, "score": score, **_interval(list(values.values()))}
        for (size, method, rule, score), values in _by_split(rows).items()
    ]


def differences(rows: Rows) -> list[Row]:
    """One-vs-each minus each other method on the same splits: mean and 95 % interval, one row each."""
    groups = _by_split(rows)
    result: list[Row] = []
    for (size, method, rule, score), theirs in groups.items():
        # The rivals have one rule of prediction, which is compared with both of ours.
        for our_rule in RULES if method in RIVALS else (rule,):
            ours = groups.get((size, "one-vs-each", our_rule, score))
            if ours and method != "one-vs-each" and score != "error":
                name = {"size": size, "rule": our_rule, "score": score, "one-vs-each minus": method}
                result.append({**name, **_interval([ours[split] - theirs[split] for split in theirs])})
    return result


def pooled_ece(rows: Rows) -> list[Row]:
    """ECE of the pooled test examples of all splits, without the upward bias of one split's few examples.

    Also the mean of accuracy minus confidence, which is positive where a method is under-confident.
    """
    groups: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows["predictions"]:
        groups.setdefault((row["size"], row["method"], row["rule"]), []).append(row)
    result: list[Row] = []
    for (size, method, rule), group in groups.items():
        gaps = np.sum([r["gaps"] for r in group], 0) / sum(r["n_test"] for r in group)
        scores = {"ece": float(np.abs(gaps).sum()), "accuracy minus confidence": float(gaps.sum())}
        result.append({"size": size, "method": method, "rule": rule, **scores})
    return result


def _by_split(rows: Rows) -> dict[tuple[int, str, str, str], dict[int, float]]:
    """Values by (size, method, rule or way, score) and split; "kl" is the log evidence minus the ELBO."""
    groups: dict[tuple[int, str, str, str], dict[int, float]] = {}
    for row in rows["predictions"]:
        for score in SCORES:
            groups.setdefault((row["size"], row["method"], row["rule"], score), {})[row["split"]] = row[score]
    evidence = {(r["size"], r["split"]): r["value"] for r in rows["bounds"] if r["way"] == "importance"}
    for row in rows["bounds"]:
        here = row["size"], row["method"], row["way"]
        groups.setdefault((*here, "elbo"), {})[row["split"]] = row["value"]
        groups.setdefault((*here, "error"), {})[row["split"]] = row["error"]
        groups.setdefault((*here, "kl"), {})[row["split"]] = evidence[row["size"], row["split"]] - row["value"]
    return groups


def _interval(values: Sequence[float]) -> dict[str, Any]:
    interval = mean_interval(np.array(values))
    return {"mean": interval.estimate, "low": interval.low, "high": interval.high, "n": len(values)}


def _file(folder: Path, part: Part) -> Path:
    size, first, last = part
    return folder / f"size-{size:02d}-splits-{first:04d}-{last:04d}.json"


def _write_part(folder: Path, settings: IrisSettings, part: Part) -> None:
    """Solve the splits of one part on one thread, so that the last bits do not depend on the number of processes."""
    size, first, last = part
    with one_thread():
        each = [solve_split(size, split, settings.seed, settings.effort) for split in range(first, last)]
    write_json(_file(folder, part), {kind: [row for rows in each for row in rows[kind]] for kind in each[0]})
