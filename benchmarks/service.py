"""What `polyshot serve` costs beside plain calls of the same model in Python.

    OMP_NUM_THREADS=1 python -m benchmarks.service

The model has 20 classes with 5 examples each of made-up vectors (256 numbers, seed 0). The server runs in a thread of
this process, and the clients in others, so that the processor time is that of server and clients together. Processor
times also hold on a busy machine. The table is for docs/serve.md.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import uvicorn
from numpy.typing import NDArray

from polyshot.app import ItemClassifier, Items, Levels
from polyshot.app.server import listen
from polyshot.app.service import Limits, make_service

CLASSES, SHOTS, FEATURES, QUERIES = 20, 5, 256, 1024
CLIENTS, BATCH = 64, 256
LEVELS = {"probabilities": Levels(None, None, 0), "with sets and p-values": Levels(n_reasons=0)}


def model() -> ItemClassifier:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(CLASSES * SHOTS, FEATURES)) + 2 * rng.normal(size=(CLASSES, FEATURES)).repeat(SHOTS, 0)
    return ItemClassifier.fit(Items.of("vectors", X), [f"class {k // SHOTS}" for k in range(len(X))])


def timed(work: Callable[[], Any], n: int) -> tuple[float, float]:
    """Milliseconds per query: processor time, and by the clock."""
    work()
    spent, clock = time.process_time(), time.perf_counter()
    work()
    return 1000 * (time.process_time() - spent) / n, 1000 * (time.perf_counter() - clock) / n


def through_http(port: int, path: str, bodies: list[bytes]) -> None:
    """All requests, by CLIENTS clients that keep their connection."""

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        for body in bodies[number::CLIENTS]:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))


def measure(classifier: ItemClassifier, levels: Levels, queries: NDArray[np.float64]) -> dict[str, tuple[float, float]]:
    """Milliseconds per query of each way to ask."""

    def call(rows: NDArray[np.float64]) -> None:
        classifier.answer(Items.of("vectors", rows), levels)

    app = make_service(classifier, levels, Limits(n_items=BATCH))
    config = uvicorn.Config(app, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    rows = queries.tolist()
    one = [json.dumps({"item": row}).encode() for row in rows]
    many = [json.dumps({"items": rows[first : first + BATCH]}).encode() for first in range(0, len(rows), BATCH)]
    with listen("127.0.0.1", 0) as socket:
        port = socket.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
        thread.start()
        found = {
            "Python, one at a time": timed(lambda: [call(row[None]) for row in queries], len(rows)),
            f"HTTP, one at a time, {CLIENTS} clients": timed(lambda: through_http(port, "/classify", one), len(rows)),
            f"Python, {BATCH} at a time": timed(
                lambda: [call(queries[first : first + BATCH]) for first in range(0, len(rows), BATCH)], len(rows)
            ),
            f"HTTP, {BATCH} at a time": timed(lambda: through_http(port, "/classify/batch", many), len(rows)),
        }
        server.should_exit = True
        thread.join()
    return found


def main() -> None:
    classifier = model()
    queries = 2 * np.random.default_rng(1).normal(size=(QUERIES, FEATURES)).round(4)
    print("| answers | asked by | processor ms per query | by the clock |")
    print("|---|---|---:|---:|")
    for title, levels in LEVELS.items():
        some = queries if levels.confidence is None else queries[: 2 * BATCH]
        for way, (spent, clock) in measure(classifier, levels, some).items():
            print(f"| {title} | {way} | {spent:.2f} | {clock:.2f} |", flush=True)


if __name__ == "__main__":
    main()
