"""Fit time on an idle and on a busy machine: python -m benchmarks.estimator_threads

Fit plus predict_proba of 25 x 1,280 (5-way 5-shot, 75 queries) with the default number of threads, first alone and
then with one busy process per core. A ratio of the medians under 2 is the goal: with as many busy processes as cores,
a fair share of a core is one half. "all threads" is the same work without `few_threads`. Run it on an idle machine.
"""

import multiprocessing
import os
import time

import numpy as np

from polyshot import OneVsEachClassifier
from polyshot.system import threads

REPETITIONS = 50


def spin() -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # not for ever if the benchmark is killed
        pass


def seconds() -> float:
    """Median time of a fit and its predictions."""
    generator = np.random.default_rng(0)
    y, labels = np.repeat(np.arange(5), 5), np.repeat(np.arange(5), 15)
    centres = generator.standard_normal((5, 1280)) / 9
    X, queries = (centres[k] + generator.standard_normal((len(k), 1280)) for k in (y, labels))
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        OneVsEachClassifier().fit(X, y).predict_proba(queries)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def main() -> None:
    seconds()  # what is compiled at first use
    small = threads._SMALL
    for name, limit in (("few_threads", small), ("all threads", -1)):
        threads._SMALL = limit
        idle = seconds()
        busy = [
            multiprocessing.get_context("spawn").Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)
        ]
        for process in busy:
            process.start()
        time.sleep(2)
        loaded = seconds()
        for process in busy:
            process.terminate()
        print(f"{name}: idle {1e3 * idle:.1f} ms, busy {1e3 * loaded:.1f} ms, ratio {loaded / idle:.2f}", flush=True)


if __name__ == "__main__":
    main()
