"""How many queries a second `polyshot serve` answers, and how soon, beside plain calls of the same model in Python.

    OMP_NUM_THREADS=1 python -m benchmarks.service

The model has 20 classes with 5 examples each of made-up vectors (256 numbers, seed 0). The server is the command, in a
process of its own, on one thread; the clients are threads of this process that keep their connections. So two cores
are needed, and nothing else should run. Latency is what a client waits for one request. The table goes to
docs/serve.md.
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.estimator_table import put_into_docs
from polyshot.app import ItemClassifier, Items, Levels

CLASSES, SHOTS, FEATURES, BATCH = 20, 5, 256, 256
SECONDS = 5.0  # of each measurement, after as many requests as there are clients
LEVELS = {"probabilities (`--fast`)": Levels(None, None, 0), "with sets and p-values": Levels(n_reasons=0)}


def made_up() -> ItemClassifier:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(CLASSES * SHOTS, FEATURES)) + 2 * rng.normal(size=(CLASSES, FEATURES)).repeat(SHOTS, 0)
    return ItemClassifier.fit(Items.of("vectors", X), [f"class {k // SHOTS}" for k in range(len(X))])


@contextmanager
def served(model: Path, levels: Levels) -> Iterator[int]:
    """The port of a server."""
    words = ["--port", "0", "--reasons", "0", *(["--fast"] if levels.confidence is None else [])]
    command = [sys.executable, "-u", "-m", "polyshot", "serve", str(model), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout
            line = next(line for line in process.stdout if line.startswith("listening on "))
            yield int(line.split(",")[0].rpartition(":")[2])
        finally:
            process.terminate()


def repeated(ask: Callable[[], None], until: float) -> list[float]:
    """Milliseconds of each call, again and again."""
    times = []
    while (start := time.perf_counter()) < until:
        ask()
        times.append(1000 * (time.perf_counter() - start))
    return times


def through_http(port: int, path: str, body: bytes, n_clients: int) -> list[float]:
    """Milliseconds of each request of so many clients."""

    def client(_: int) -> list[float]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

        def ask() -> None:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content

        ask()
        times = repeated(ask, time.perf_counter() + SECONDS)
        connection.close()
        return times

    with ThreadPoolExecutor(n_clients) as pool:
        return [t for times in pool.map(client, range(n_clients)) for t in times]


def in_python(classifier: ItemClassifier, levels: Levels, queries: NDArray[np.float64]) -> list[float]:
    """Milliseconds of each plain call."""

    def ask() -> None:
        classifier.answer(Items.of("vectors", queries), levels)

    ask()
    return repeated(ask, time.perf_counter() + SECONDS)


def main() -> None:
    classifier = made_up()
    queries = 2 * np.random.default_rng(1).normal(size=(BATCH, FEATURES)).round(4)
    one = json.dumps({"item": queries[0].tolist()}).encode()
    many = json.dumps({"items": queries.tolist()}).encode()
    lines = [
        "| answers | asked by | queries per second | latency, ms (95th percentile) |",
        "|---|---|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.polyshot"
        classifier.save(model)
        for title, levels in LEVELS.items():
            with served(model, levels) as port:
                found = {
                    "Python, one at a time": (1, 1, in_python(classifier, levels, queries[:1])),
                    "HTTP, one at a time, 1 client": (1, 1, through_http(port, "/classify", one, 1)),
                    "HTTP, one at a time, 64 clients": (1, 64, through_http(port, "/classify", one, 64)),
                    f"Python, {BATCH} at a time": (BATCH, 1, in_python(classifier, levels, queries)),
                    f"HTTP, {BATCH} at a time, 4 clients": (BATCH, 4, through_http(port, "/classify/batch", many, 4)),
                }
            for way, (n, clients, times) in found.items():
                rate = n * len(times) * clients / (sum(times) / 1000)
                low, high = np.quantile(times, (0.5, 0.95))
                lines.append(f"| {title} | {way} | {rate:,.0f} | {low:,.1f} ({high:,.1f}) |")
                print(lines[-1], flush=True)
    put_into_docs("service", "\n".join(lines))


if __name__ == "__main__":
    main()
