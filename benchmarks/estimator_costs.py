"""Time and memory of OneVsEachClassifier at the sizes that users bring: python -m benchmarks.estimator_costs

Synthetic data (Gaussian classes); each size runs in its own process with one thread. The table has the processor
seconds of a fit and 1,000 predictions next to those of the rival on the same data, and the growth of the peak memory
(VmHWM, so Linux only) next to what `needed_bytes` expects before a fit. It is written into docs/estimator.md.
"""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.estimator_rivals import RIVALS
from benchmarks.estimator_table import put_into_docs
from polyshot import OneVsEachClassifier
from polyshot.estimator.inference import ChainOptions
from polyshot.estimator.memory import needed_bytes

SIZES = (  # inference, classes, shots, features
    ("propagation", 5, 5, 1280),
    ("propagation", 50, 5, 384),
    ("propagation", 10, 100, 64),
    ("propagation", 200, 5, 1280),
    ("propagation", 10, 200, 1280),
    ("variational", 5, 5, 1280),
    ("variational", 50, 6, 384),
    ("variational", 5, 80, 64),
    ("gibbs", 5, 5, 1280),
    ("gibbs", 5, 40, 64),
)
RIVAL = "LogisticRegressionCV"
N_QUERIES = 1000


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def measure(inference: str, n_way: int, n_shot: int, n_features: int) -> list[float]:
    """Seconds, the rival's seconds, and MB measured and expected."""
    warnings.simplefilter("ignore")
    generator = np.random.default_rng(0)
    means = generator.standard_normal((n_way, n_features)) / np.sqrt(n_features) * 4
    labels = np.r_[np.repeat(np.arange(n_way), n_shot), np.arange(N_QUERIES) % n_way]
    everything = means[labels] + generator.standard_normal((len(labels), n_features))
    X, y, queries = everything[:-N_QUERIES], labels[:-N_QUERIES], everything[-N_QUERIES:]
    model = OneVsEachClassifier(kernel="cosine", inference=inference, random_state=0)
    model.fit(X[:20], np.arange(20) % 2)  # what is compiled at first use
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    start = time.process_time()
    model.fit(X, y)
    peak = status("VmHWM") - before
    model.predict_proba(queries)
    middle = time.process_time()
    RIVALS[RIVAL](X, y)(queries)
    end = time.process_time()
    return [
        middle - start,
        end - middle,
        peak / 1e6,
        needed_bytes(inference, len(X), n_way, n_features, ChainOptions(4, 5000, None)) / 1e6,
    ]


def main() -> None:
    if len(sys.argv) > 1:
        print(*measure(sys.argv[1], *map(int, sys.argv[2:])))
        return
    lines = [
        f"| inference | classes x examples | features | fit + 1,000 predictions | {RIVAL} | memory | expected |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for inference, n_way, n_shot, n_features in SIZES:
        words = [inference, *map(str, (n_way, n_shot, n_features))]
        command = [sys.executable, "-m", "benchmarks.estimator_costs", *words]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        ours, rivals, peak, expected = map(float, run.stdout.split())
        lines.append(
            f"| {inference} | {n_way} x {n_shot} | {n_features:,} | {ours:.2f} s | {rivals:.2f} s | {peak:.0f} MB | "
            f"{expected:.0f} MB |"
        )
        print(lines[-1], flush=True)
    put_into_docs("costs", "\n".join(lines))


if __name__ == "__main__":
    main()
