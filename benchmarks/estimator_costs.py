"""Time and memory of OneVsEachClassifier at the sizes that users bring: python -m benchmarks.estimator_costs [REGEX]

Synthetic data (Gaussian classes); each size runs with one thread, and each method in its own process. The table has the
processor time of a fit and 1,000 predictions next to those of two rivals on the same data, the time of adding one
label, and the growth of the peak memory (VmHWM, so Linux only) next to what is expected before a fit. Small sizes are
repeated and the least time counts. With a regular expression only the methods and sizes that match are run, such as
"^propagation 10 100 64$". The figures so far are kept, and their table is written into docs/estimator-size.md. A rival
that would take minutes is left out ("-").
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
from numpy.typing import NDArray

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
Array, Labels = NDArray[np.float64], NDArray[np.int64]
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


def task(n_way: int, n_shot: int, d: int) -> tuple[Array, Labels, Array, Labels]:
    """Examples with labels, and queries with theirs."""
    generator = np.random.default_rng(0)
    means = generator.standard_normal((n_way, d)) / np.sqrt(d) * 4
    labels = np.r_[np.repeat(np.arange(n_way), n_shot), np.arange(N_QUERIES) % n_way]
    everything = means[labels] + generator.standard_normal((len(labels), d))
    return everything[:-N_QUERIES], labels[:-N_QUERIES], everything[-N_QUERIES:], labels[-N_QUERIES:]


def ours(inference: str, *numbers: int) -> list[float]:
    """Seconds of a fit with its predictions and of adding a label, MB measured and expected, and how many features."""
    X, y, queries, labels = task(*numbers)
    model = OneVsEachClassifier(kernel="cosine", inference=inference, random_state=0)
    model.fit(X[:20], np.arange(20) % 2).predict_proba(queries)  # what is compiled at first use
    n_way, _, d = numbers
    few = X.size * n_way < _SMALL and inference == "propagation"
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    both = seconds(lambda: model.fit(X, y).predict_proba(queries), 5 if few else 1)
    peak = status("VmHWM") - before
    addition = seconds(lambda: model.add(queries[:1], labels[:1]), 1)
    by_features = n_features("cosine", *X.shape, n_way) if inference == "propagation" else 0
    expected = needed_bytes(inference, len(X), n_way, d, ChainOptions(4, 5000, None), by_features)
    return [both, addition, peak / 1e6, expected / 1e6, by_features]


def rival(name: str, *numbers: int) -> list[float]:
    """Seconds of a rival's fit and predictions."""
    X, y, queries, _ = task(*numbers)
    return [seconds(lambda: RIVALS[name](X, y)(queries), 5 if X.size * numbers[0] < _SMALL else 1)]


def shown(duration: float) -> str:
    if np.isnan(duration):
        return "-"
    return f"{1e3 * duration:.0f} ms" if duration < 1 else f"{duration:.1f} s"


def row(inference: str, numbers: tuple[int, ...], results: dict[str, list[float]]) -> str:
    """A row of the table."""
    n_way, n_shot, d = numbers
    both, addition, peak, expected, by_features = results[key(inference, numbers)]
    cells = [inference, f"{n_way:,} x {n_shot} x {d:,}", "features" if by_features else "kernel matrix", shown(both)]
    cells += [shown(results.get(key(name, numbers), [np.nan])[0]) for name in RIVAL_NAMES]
    return f"| {' | '.join([*cells, shown(addition), f'{peak:,.0f} MB', f'{expected:,.0f} MB'])} |"


def key(name: str, numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, (name, *numbers)))


def main() -> None:
    if len(sys.argv) == 5:
        warnings.simplefilter("ignore")
        name, numbers = sys.argv[1], map(int, sys.argv[2:])
        print(*(rival(name, *numbers) if name in RIVALS else ours(name, *numbers)))
        return
    results = json.loads(RESULTS.read_bytes()) if RESULTS.is_file() else {}
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for inference, *sizes in SIZES:
        numbers = tuple(sizes)
        many = np.prod([*numbers, numbers[0]], dtype=float) > _MOST_NUMBERS
        for name in (inference, RIVAL_NAMES[0], *(RIVAL_NAMES[1:] if not many else ())):
            if len(sys.argv) == 1 or re.search(sys.argv[1], key(name, numbers)):
                command = [sys.executable, "-m", "benchmarks.estimator_costs", name, *map(str, numbers)]
                run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                results[key(name, numbers)] = [float(f"{float(x):.3g}") for x in run.stdout.split()]
                write_atomically(RESULTS, json.dumps(results).encode())
                print(key(name, numbers), *results[key(name, numbers)], flush=True)
    rows = [row(name, tuple(n), results) for name, *n in SIZES if key(name, tuple(n)) in results]
    put_into_docs("costs", "\n".join([HEAD, "|---|---|---|" + "---:|" * (len(RIVAL_NAMES) + 4), *rows]))


if __name__ == "__main__":
    main()
