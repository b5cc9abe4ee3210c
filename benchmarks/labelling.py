"""How quickly does the labelling page answer, and is the accuracy that it expects the true one?

    OMP_NUM_THREADS=1 python -m benchmarks.labelling times
    POLYSHOT_DATA=... OMP_NUM_THREADS=1 python -m benchmarks.labelling accuracy

`times` labels made-up vectors of 10 classes through the page's own server, and takes the last label back. Wall time
depends on what else the machine does; processor time is that of server and learning together. The table goes to
docs/label.md.

`accuracy` labels 1,000 items of ten classes drawn at random, as the page asks for them, 10 times. It compares the true
accuracy on the open items with the page's estimate from spot checks, and with OneVsEachClassifier.expected_accuracy on
the labels when every item is chosen by the model.
"""

import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.estimator_table import put_into_docs
from polyshot.app import Items
from polyshot.app.labelling import Exports, Server, Session
from polyshot.app.labelling.enough import CHECK_EVERY, accuracy
from polyshot.app.labelling.learning import Learned, answer_open
from polyshot.app.labelling.ranking import first_to_label

# items, numbers in a vector, labels
SIZES = ((2000, 256, 30), (2000, 256, 300), (2000, 1280, 30), (2000, 1280, 300), (5000, 256, 30), (5000, 1280, 30))
CLASSES = 10
PAUSE = 0.05  # seconds between decisions of somebody in a hurry
LAST = 30  # decisions that are timed, the last of the labels
SETS = ("clinc150_minilm",)
REPETITIONS, ITEMS, STEPS = 10, 1000, (40, 80, 120)
OUT = Path(__file__).parent / "results" / "labelling.json"
Vectors = NDArray[np.float32]


def made_up(n: int, d: int) -> tuple[Vectors, list[str]]:
    """Overlapping Gaussian classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, n)
    X = rng.normal(size=(CLASSES, d))[y] + 2.5 * rng.normal(size=(n, d))
    return X.astype(np.float32), [f"class {k}" for k in y]


class Page:
    """What the page's script does, without a browser."""

    def __init__(self, url: str) -> None:
        address, _, token = url.partition("/?token=")
        self.host = address.removeprefix("http://")
        cookie = f"polyshot-label-{self.host.partition(':')[2]}={token}"
        self.headers = {"Cookie": cookie, "Origin": address, "Content-Type": "application/json"}

    def ask(self, path: str, content: Any = None) -> Any:
        body = None if content is None else json.dumps(content)
        connection = http.client.HTTPConnection(self.host)
        connection.request("GET" if body is None else "POST", path, body, self.headers)
        content = json.loads(connection.getresponse().read())
        connection.close()
        return content


def timed(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """Its value, and the milliseconds of wall and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    value = function()
    return value, 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor)


def until_learned(session: Session, page: Page, path: str, content: dict[str, Any]) -> tuple[float, float]:
    """Milliseconds from a change to the answers that know it: of wall and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    version = page.ask(path, content)["version"]
    while session.learned.version < version:
        time.sleep(0.001)
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor)


def measure(n: int, d: int, n_labels: int) -> dict[str, Any]:
    """Times of the first item, of the next item after a decision, of new answers, of somebody who does not wait for
    suspects, strangers and accuracy, and of an undo."""
    X, y = made_up(n, d)
    items = Items.of("text", [f"item {k}" for k in range(n)])
    names = ("first item", "next item", "new answers", "all", "in a hurry", "undo")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter(), time.process_time()
        with Session(items, X, Path(folder) / "labels.sqlite", name="made-up") as session:
            server = Server(session, Exports(session, Path(folder)))
            thread = threading.Thread(target=server.run)
            thread.start()
            page = Page(server.url)
            state = page.ask("/state")
            times["first item"].append((1e3 * (time.perf_counter() - start[0]), 1e3 * (time.process_time() - start[1])))
            session.wait()
            for _ in range(n_labels):
                row = state["queue"][0]["row"]
                content = {"rows": [row], "kind": "class", "label": y[row], "seen": state["version"]}
                begin = time.perf_counter(), time.process_time()
                state, *times_of_next = timed(partial(page.ask, "/decide", content))
                times["next item"].append((times_of_next[0], times_of_next[1]))
                while session.learned.version < state["version"]:
                    time.sleep(0.001)
                times["new answers"].append(
                    (1e3 * (time.perf_counter() - begin[0]), 1e3 * (time.process_time() - begin[1]))
                )
                session.wait()
                times["all"].append((1e3 * (time.perf_counter() - begin[0]), 1e3 * (time.process_time() - begin[1])))
                state = page.ask("/state")
            for _ in range(LAST):
                row = state["queue"][0]["row"]
                content = {"rows": [row], "kind": "class", "label": y[row], "seen": state["version"]}
                times["in a hurry"].append(until_learned(session, page, "/decide", content))
                time.sleep(PAUSE)
                state = page.ask("/state")
            times["undo"].append(until_learned(session, page, "/undo", {"seen": state["version"]}))
            server.stop()
            thread.join()
    found = {}
    for name, pairs in times.items():
        wall, processor = np.array(pairs[-LAST:]).T
        found[name] = {
            "wall": [round(float(np.quantile(wall, q)), 1) for q in (0.5, 0.95)],
            "processor": [round(float(np.quantile(processor, q)), 1) for q in (0.5, 0.95)],
        }
    return {"items": n, "numbers": d, "labels": n_labels, "milliseconds": found}


def table(times: list[dict[str, Any]]) -> str:
    """The wall times as Markdown."""
    lines = [
        "| items | numbers | labels | first item | next item | new answers | in a hurry | undo | everything |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in times:
        walls = {name: row["milliseconds"][name]["wall"] for name in row["milliseconds"]}
        pairs = {name: f"{median:.0f} ({high:.0f})" for name, (median, high) in walls.items()}
        lines.append(
            f"| {row['items']:,} | {row['numbers']:,} | {row['labels']} | {walls['first item'][0]:.0f} | "
            f"{pairs['next item']} | {pairs['new answers']} | {pairs['in a hurry']} | {walls['undo'][0]:.0f} | "
            f"{pairs['all']} |"
        )
    return "\n".join(lines)


def read(name: str, seed: int) -> tuple[Vectors, NDArray[np.str_]]:
    """Items of ten classes drawn at random."""
    rng = np.random.default_rng(seed)
    with np.load(Path(os.environ["POLYSHOT_DATA"]) / f"{name}.npz") as file:
        labels = file["labels"]
        classes = rng.choice(labels.max() + 1, CLASSES, replace=False)
        rows = rng.permutation(np.flatnonzero(np.isin(labels, classes)))[:ITEMS]
        return file["X"][rows].astype(np.float32), np.array([f"class {k:04}" for k in labels[rows]])


def simulate(X: Vectors, y: NDArray[np.str_], seed: int, *, checks: bool) -> dict[int, tuple[float, Any]]:
    """Label as the page asks, with or without spot checks: the true accuracy and the estimate after so many labels."""
    drawn = np.random.default_rng(seed).permutation(len(X)).tolist()
    first = first_to_label(X, seed)
    labels: dict[int, str] = {}
    made: list[int] = []
    learned: Learned | None = None
    found = {}
    while len(labels) < max(STEPS):
        check = next(row for row in drawn if row not in labels)
        guess = {} if learned is None else learned.guess(check)
        if checks and guess and len(labels) % CHECK_EVERY == CHECK_EVERY - 1:
            row = check
            made.append(len(labels))
        else:
            row = (first if learned is None else [r for r in learned.order if not (checks and r == check)])[0]
        labels[row] = str(y[row])
        learned = answer_open(X, len(labels), labels.copy(), set(labels), first, learned)
        if len(labels) in STEPS and learned.model is not None:
            predicted = np.array(learned.classes)[learned.probabilities.argmax(1)]
            spot = accuracy(len(labels), learned.model, made)
            estimate = learned.model.expected_accuracy() if spot is None else spot[2:]
            found[len(labels)] = (float(np.mean(predicted == y[learned.rows])), estimate)
    return found


def compare(name: str) -> list[dict[str, Any]]:
    """Averages over repetitions, and how often the interval has the true accuracy."""
    rows = []
    for checks in (False, True):
        runs = [simulate(*read(name, seed), seed, checks=checks) for seed in range(REPETITIONS)]
        for step in STEPS:
            true = np.array([run[step][0] for run in runs])
            estimate, low, high = np.array([run[step][1] for run in runs]).T
            rows.append(
                {
                    "data": name,
                    "estimate from": "spot checks" if checks else "leave-one-out",
                    "labels": step,
                    "true": round(float(true.mean()), 3),
                    "estimate": round(float(estimate.mean()), 3),
                    "interval": [round(float(low.mean()), 3), round(float(high.mean()), 3)],
                    "inside": f"{int(((low <= true) & (true <= high)).sum())} of {REPETITIONS}",
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


if __name__ == "__main__":
    part = sys.argv[1]
    results = json.loads(OUT.read_text()) if OUT.is_file() else {}
    if part == "times":
        results["times"] = []
        for size in SIZES:
            results["times"].append(measure(*size))
            print(json.dumps(results["times"][-1]), flush=True)
            OUT.write_text(json.dumps(results, indent=1))
        put_into_docs("label times", table(results["times"]))
    else:
        results["accuracy"] = [row for name in SETS for row in compare(name)]
        OUT.write_text(json.dumps(results, indent=1))
