"""All sizes and splits of the Iris experiment, in parallel processes and in parts that survive an interrupt."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from paper.studies.iris import N_EACH, RIVALS, Effort, solve_split
from paper.studies.output import Row, make_folder, write_json
from polyshot.errors import InputError
from polyshot.evaluation.metrics import mean_interval
from polyshot.system.threads import one_thread

PAPER_SIZES = (1, 2, 3, 4, 5, 10, 15, 20, 25, 30)
SCORES = ("accuracy", "brier", "ece")
RULES = ("mean", "full")
_PART = 10  # splits in a part

Rows = dict[str, list[Row]]
Report = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Settings:
    """What is run. The results depend on nothing else."""

    sizes: tuple[int, ...] = PAPER_SIZES
    n_splits: int = 200
    seed: int = 0
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        """Refuse sizes that Iris does not have."""
        if not self.sizes or len(set(self.sizes)) < len(self.sizes):
            raise InputError(f"sizes must be different numbers of examples a class, not {self.sizes}")
        if wrong := [size for size in self.sizes if not 1 <= size < N_EACH]:
            raise InputError(f"Iris has {N_EACH} examples a class: sizes are 1 to {N_EACH - 1}, not {wrong}")
        if self.n_splits < 2 or self.seed < 0:
            raise InputError(f"need at least 2 splits and a seed >= 0, not {self.n_splits} and {self.seed}")

    def parts(self) -> list[tuple[int, int, int]]:
        """Size, first split and last (exclusive) of each part; all sizes of the first splits come first."""
        starts = range(0, self.n_splits, _PART)
        return [(size, k, min(k + _PART, self.n_splits)) for k in starts for size in sorted(self.sizes, reverse=True)]

    def fingerprint(self) -> str:
        """The same for the same results: parts of other settings are never mixed up."""
        text = json.dumps([self.seed, asdict(self.effort)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


def run_study(out: Path, settings: Settings, n_workers: int = 1, report: Report | None = None) -> Rows:
    """Rows of all splits. Finished parts are files under `out`, so that the same call goes on after an interrupt."""
    if n_workers < 1:
        raise InputError(f"n_workers must be at least 1, not {n_workers}")
    folder = make_folder(out / "parts" / settings.fingerprint())
    parts = settings.parts()
    files = {part: folder / f"size-{part[0]:02d}-splits-{part[1]:04d}-{part[2]:04d}.json" for part in parts}
    waiting = [part for part in parts if not files[part].exists()]
    done = len(parts) - len(waiting)
    if report:
        report(done, len(parts), "found" if done else "nothing yet")
    for size, first, last in _finished(waiting, files, settings, n_workers):
        done += 1
        if report:
            report(done, len(parts), f"{size} a class, splits {first} to {last - 1}")
    rows: Rows = {"predictions": [], "bounds": [], "diagnostics": []}
    for part in sorted(parts):
        for kind, new in json.loads(files[part].read_text("utf-8")).items():
            rows[kind] += new
    return rows


def summarise(rows: Rows) -> list[Row]:
    """Mean and 95 % interval over the splits of every score, bound and divergence; a row each."""
    return [
        {"size": size, "method": method, "rule": rule, "score": score, **_interval(list(values.values()))}
        for (size, method, rule, score), values in _by_split(rows).items()
    ]


def differences(rows: Rows) -> list[Row]:
    """One-vs-each minus each other method on the same splits: mean and 95 % interval, a row each."""
    groups = _by_split(rows)
    result: list[Row] = []
    for (size, method, rule, score), theirs in groups.items():
        # scikit-learn's have one way to predict, which is compared with both of ours.
        for our_rule in RULES if method in RIVALS else (rule,):
            ours = groups.get((size, "one-vs-each", our_rule, score))
            if ours and method != "one-vs-each" and score != "error":
                name = {"size": size, "rule": our_rule, "score": score, "one-vs-each minus": method}
                result.append({**name, **_interval([ours[split] - theirs[split] for split in theirs])})
    return result


def pooled_ece(rows: Rows) -> list[Row]:
    """ECE of the test examples of all splits together, which has none of the bias of one split's few examples.

    With it the mean of accuracy minus confidence, which is positive where a method is not sure enough.
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
    """Values by (size, method, rule or way, score) and split; "kl" is what an ELBO lacks to the log evidence."""
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


def _finished(
    waiting: Sequence[tuple[int, int, int]], files: dict[tuple[int, int, int], Path], settings: Settings, n_workers: int
) -> Iterator[tuple[int, int, int]]:
    if n_workers == 1:
        for part in waiting:
            _write_part(part, files[part], settings)
            yield part
        return
    # Fresh processes, not forked ones: a fork of a process with threads may hang.
    with ProcessPoolExecutor(min(n_workers, max(len(waiting), 1)), get_context("spawn")) as pool:
        futures = {pool.submit(_write_part, part, files[part], settings): part for part in waiting}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _write_part(part: tuple[int, int, int], file: Path, settings: Settings) -> None:
    """One thread, whatever the number of processes: the sums, and so the last bits, come out the same."""
    with one_thread():
        each = [solve_split(part[0], split, settings.seed, settings.effort) for split in range(*part[1:])]
    write_json(file, {kind: [row for rows in each for row in rows[kind]] for kind in each[0]})
