"""Time and memory of OneVsEachClassifier at the sizes that users bring: python -m benchmarks.estimator_costs [REGEX]

Synthetic data (Gaussian classes); each size runs in its own process with one thread. The table has the processor time
of a fit and 1,000 predictions next to those of two rivals on the same data in the same run, the time of adding one
label, and the growth of the peak memory (VmHWM, so Linux only) next to what is expected before a fit. Small sizes are
repeated and the least time counts. With a regular expression only the sizes that match are run. The figures of all
sizes so far are kept, and their table is written into docs/estimator-size.md. LogisticRegressionCV is left out ("-")
where it would take minutes.
"""

import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.estimator_rivals import RIVALS
from benchmarks.estimator_table import put_into_docs
from polyshot import OneVsEachClassifier
from polyshot.estimator.inference import ChainOptions
from polyshot.estimator.memory import needed_bytes
from polyshot.estimator.projection import n_features
from polyshot.system.files import write_atomically

SIZES = (  # inference, classes, shots, features
    ("propagation", 5, 5, 384),
    ("propagation", 20, 5, 384),
    ("propagation", 5, 5, 1280),
    ("propagation", 10, 100, 64),
    ("propagation", 10, 100, 384),
    ("propagation", 10, 200, 1280),
    ("propagation", 200, 5, 1280),
    ("propagation", 1000, 5, 384),
    ("propagation", 100, 500, 384),
    ("variational", 5, 5, 1280),
    ("variational", 50, 6, 384),
    ("gibbs", 5, 5, 1280),
)
RESULTS = Path("benchmarks/results/estimator_costs.json")
RIVAL_NAMES = ("LogisticRegression(C=1)", "LogisticRegressionCV")
HEAD = (
    "| inference | classes x examples x features | form | fit + 1,000 predictions | "
    f"{' | '.join(RIVAL_NAMES)} | one label more | memory | expected |"
)
N_QUERIES = 1000
_MOST_NUMBERS, _SMALL = 4e7, 1e6  # numbers in X times classes: without the CV rival above, repeated below


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def seconds(job: Callable[[], object], repetitions: int) -> float:
    """Least processor time of several runs."""
    times = []
    for _ in range(repetitions):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def measure(inference: str, n_way: int, n_shot: int, d: int) -> list[float]:
    """Seconds of ours, of the rivals (NaN: left out) and of adding a label, and MB measured and expected."""
    warnings.simplefilter("ignore")
    generator = np.random.default_rng(0)
    means = generator.standard_normal((n_way, d)) / np.sqrt(d) * 4
    labels = np.r_[np.repeat(np.arange(n_way), n_shot), np.arange(N_QUERIES) % n_way]
    everything = means[labels] + generator.standard_normal((len(labels), d))
    X, y, queries = everything[:-N_QUERIES], labels[:-N_QUERIES], everything[-N_QUERIES:]
    model = OneVsEachClassifier(kernel="cosine", inference=inference, random_state=0)
    model.fit(X[:20], np.arange(20) % 2).predict_proba(queries)  # what is compiled at first use
    size = X.size * n_way
    repetitions = 5 if size < _SMALL and inference == "propagation" else 1
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    ours = seconds(lambda: model.fit(X, y).predict_proba(queries), repetitions)
    peak = status("VmHWM") - before
    rivals = [
        seconds(lambda name=name: RIVALS[name](X, y)(queries), repetitions)
        if name == RIVAL_NAMES[0] or size <= _MOST_NUMBERS
        else np.nan
        for name in RIVAL_NAMES
    ]
    addition = seconds(lambda: model.add(queries[:1], labels[-N_QUERIES : -N_QUERIES + 1]), 1)
    by_features = n_features("cosine", *X.shape, n_way) if inference == "propagation" else 0
    expected = needed_bytes(inference, len(X), n_way, d, ChainOptions(4, 5000, None), by_features)
    return [ours, *rivals, addition, peak / 1e6, expected / 1e6, by_features]


def shown(duration: float) -> str:
    if np.isnan(duration):
        return "-"
    return f"{1e3 * duration:.0f} ms" if duration < 1 else f"{duration:.1f} s"


def row(size: tuple[str, int, int, int], figures: list[float]) -> str:
    """A row of the table."""
    inference, n_way, n_shot, d = size
    *seconds, peak, expected, by_features = figures
    ours, *rivals, addition = map(shown, seconds)
    cells = [inference, f"{n_way:,} x {n_shot} x {d:,}", "features" if by_features else "kernel matrix"]
    return f"| {' | '.join([*cells, ours, *rivals, addition, f'{peak:,.0f} MB', f'{expected:,.0f} MB'])} |"


def main() -> None:
    if len(sys.argv) == 5:
        print(*measure(sys.argv[1], *map(int, sys.argv[2:])))
        return
    results = json.loads(RESULTS.read_bytes()) if RESULTS.is_file() else {}
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for size in SIZES:
        words = list(map(str, size))
        if len(sys.argv) == 1 or re.search(sys.argv[1], " ".join(words)):
            command = [sys.executable, "-m", "benchmarks.estimator_costs", *words]
            run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            results[" ".join(words)] = [float(f"{float(x):.3g}") for x in run.stdout.split()]
            write_atomically(RESULTS, json.dumps(results).encode())
            print(row(size, results[" ".join(words)]), flush=True)
    rows = [row(size, results[key]) for size in SIZES if (key := " ".join(map(str, size))) in results]
    put_into_docs("costs", "\n".join([HEAD, "|---|---|---|" + "---:|" * (len(RIVAL_NAMES) + 4), *rows]))


if __name__ == "__main__":
    main()
