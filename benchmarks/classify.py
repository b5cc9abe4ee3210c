"""How long `polyshot classify` takes, how much memory it needs, and whether it goes on after kill -9.

    OMP_NUM_THREADS=1 python -m benchmarks.classify [NAME...]

Every row of the table is the command itself on a made-up table (seed 0): wall and processor time from start to end,
with the processes that it starts, and the memory of the largest process. The run whose name says "killed" is ended by
kill -9 in the middle and given again: its row is the second command alone, and its answers must be those of the run
that was never killed, to the byte.

"per query" measures what prediction sets and "none of these" cost in Python, with 256 features (median of five calls).

Results are added to benchmarks/results/classify.json, and the table to docs/classify.md.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimator_table import put_into_docs
from polyshot.app import ItemClassifier, Items, Levels

OUT = Path(__file__).parent / "results" / "classify.json"
CLASSES, WORDS, DIMENSION = 10, 400, 384
ROWS = 200_000
FAST = ("--fast",)
TWO_JOBS = ("--launcher", "local", "--jobs", "2")
PER_QUERY = "per query"
# name: (form, queries, examples per class, further words of the command, whether it is killed once)
RUNS: dict[str, tuple[str, int, int, tuple[str, ...], bool]] = {
    "20 sentences": ("text", 20, 5, (), False),
    "20 vectors": ("npz", 20, 5, (), False),
    "20,000 sentences": ("text", 20_000, 5, (), False),
    "20,000 vectors, CSV, --fast": ("csv", 20_000, 5, FAST, False),
    "200,000 sentences, --fast": ("text", ROWS, 5, FAST, False),
    "200,000 sentences, --fast, killed": ("text", ROWS, 5, FAST, True),
    "200,000 vectors, npz, --fast": ("npz", ROWS, 5, FAST, False),
    "200,000 vectors, npz, --fast, killed": ("npz", ROWS, 5, FAST, True),
    "200,000 vectors, npz, --fast, --launcher local --jobs 2": ("npz", ROWS, 5, (*FAST, *TWO_JOBS), False),
}


def write_table(folder: Path, form: str, n_queries: int, shots: int) -> list[str]:
    """Make a table of labelled rows and queries; return the words of the command that name its columns."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(CLASSES).repeat(shots), rng.integers(CLASSES, size=n_queries)])
    labels = [f"class {k}" if row < CLASSES * shots else "" for row, k in enumerate(y)]
    if form == "text":
        # each class has 40 words of its own, and every sentence six of these and six of any
        own, other = rng.integers(40, size=(len(y), 6)) + 40 * y[:, None], rng.integers(WORDS, size=(len(y), 6))
        words = _words(rng)
        with (folder / "t.csv").open("w", encoding="utf-8") as file:
            file.write("message,category\n")
            for row, label in zip(np.concatenate([own, other], 1), labels, strict=True):
                file.write(f"{' '.join(words[k] for k in row)},{label}\n")
        return ["t.csv", "--text", "message", "--label", "category"]
    centres = rng.normal(size=(CLASSES, DIMENSION))
    X = np.concatenate([
        (centres[part] + 2.5 * rng.normal(size=(len(part), DIMENSION))).astype(np.float32)
        for part in np.array_split(y, max(1, len(y) // 10_000))
    ])  # fmt: skip
    if form == "npz":
        known = np.array([int(label[6:]) if label else -1 for label in labels])
        np.savez(folder / "t.npz", X=X, labels=known, class_names=np.array([f"class {k}" for k in range(CLASSES)]))
        return ["t.npz"]
    names = [f"x{k}" for k in range(DIMENSION)]
    with (folder / "t.csv").open("w", encoding="utf-8") as file:
        file.write(",".join([*names, "category"]) + "\n")
        for vector, label in zip(X, labels, strict=True):
            file.write(",".join([*(f"{x:.4f}" for x in vector.tolist()), label]) + "\n")
    return ["t.csv", "--numbers", ",".join(names), "--label", "category"]


def _words(rng: np.random.Generator) -> list[str]:
    """Different words that a text encoder can tell apart: those of its own documentation would do as well."""
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found["".join(rng.choice(syllables, rng.integers(2, 4)))] = None
    return list(found)


def run(folder: Path, words: list[str], kill_after: float | None = None) -> dict[str, float]:
    """Run the command; after so many seconds it is killed."""
    command = [sys.executable, "-m", "polyshot", "classify", *words, "--out", "answers.csv"]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    start = time.perf_counter()
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if kill_after is None and process.returncode:
        raise SystemExit((folder / "log").read_text()[-2000:])
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "processor": round(used.ru_utime + used.ru_stime, 1),
        "MB": round(used.ru_maxrss / 1024),
    }


def measure(name: str) -> dict[str, Any]:
    form, n_queries, shots, more, killed = RUNS[name]
    with tempfile.TemporaryDirectory() as folder:
        words = [*write_table(Path(folder), form, n_queries, shots), *more]
        found: dict[str, Any] = {}
        if killed:
            whole = json.loads(OUT.read_text())[name.removesuffix(", killed")]
            found["killed after"] = round(whole["seconds"] / 2, 1)
            run(Path(folder), words, kill_after=found["killed after"])
            found["chunks there"] = len(list(Path(folder, "answers.csv.parts").glob("*.json")))
        found |= run(Path(folder), words)
        found["sha256"] = hashlib.sha256(Path(folder, "answers.csv").read_bytes()).hexdigest()
        found["input MB"] = round(sum(file.stat().st_size for file in Path(folder).glob("t.*")) / 2**20)
        if killed:
            assert found["sha256"] == whole["sha256"], "the answers differ from those of a run that was not killed"
        return found


def per_query() -> dict[str, float]:
    """Milliseconds per query of prediction sets and "none of these", by the number of examples."""
    rng = np.random.default_rng(0)
    found: dict[str, float] = {}
    for n in (50, 200, 1000):
        centres = rng.normal(size=(CLASSES, 256))
        X = centres[np.arange(n) % CLASSES] + 2.5 * rng.normal(size=(n, 256))
        model = ItemClassifier.fit(Items.of("vectors", X), [f"class {k % CLASSES}" for k in range(n)])
        queries = Items.of("vectors", rng.normal(size=(20, 256)))
        for levels, sign in ((Levels(), 1), (Levels(None, None), -1)):
            model.answer(queries, levels)
            times = []
            for _ in range(5):
                start = time.perf_counter()
                model.answer(queries, levels)
                times.append(50 * (time.perf_counter() - start))
            found[str(n)] = found.get(str(n), 0.0) + sign * float(np.median(times))
    return {n: round(ms, 1) for n, ms in found.items()}


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["| queries | file, MB | seconds | processor seconds | largest memory, MB |", "|---|---:|---:|---:|---:|"]
    for name in [name for name in RUNS if name in results]:
        row = results[name]
        again = f" after {row['killed after']} s, again" if "killed after" in row else ""
        lines.append(f"| {name}{again} | {row['input MB']} | {row['seconds']} | {row['processor']} | {row['MB']:,} |")
    return "\n".join(lines)


def keep(name: str, result: Any) -> dict[str, Any]:
    """Add a result to those on disk, and return all."""
    results: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() else {}
    results[name] = result
    OUT.write_text(json.dumps(results, indent=1) + "\n")
    return results


def main() -> None:
    wanted = sys.argv[1:] or [PER_QUERY, *RUNS]
    for name in wanted:
        if name == PER_QUERY:
            found = keep(name, per_query())[PER_QUERY]
            lines = ["| examples | ms per query |", "|---:|---:|", *(f"| {n} | {ms} |" for n, ms in found.items())]
            put_into_docs("classify, per query", "\n".join(lines))
        else:
            put_into_docs("classify", table(keep(name, measure(name))))
        print(name, json.loads(OUT.read_text())[name], flush=True)


if __name__ == "__main__":
    main()
