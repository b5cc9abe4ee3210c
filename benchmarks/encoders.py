"""Which encoder should be the default? Few-shot accuracy, log-loss and time on texts, photographs and characters.

    POLYSHOT_DATA=... OMP_NUM_THREADS=1 python -m benchmarks.encoders [DATA ...]

With names of data sets, only those are measured again. $ENCODERS_CACHE names a folder for the vectors, to repeat
a measurement in less time.

Every encoder sees the same episodes: episode k of a data set is a function of (set, ways, shots, k). Vectors are
classified by OneVsEachClassifier with its defaults. The result goes to benchmarks/results/encoders.json and the table
to standard output, for docs/encoders.md.
"""

import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import log_loss

from polyshot.data.loading import load
from polyshot.encoders import ImageEncoder, TextEncoder
from polyshot.estimator import OneVsEachClassifier

TEXT = ("clinc150_text", "stackoverflow_text", "trec_text")
IMAGES = ("caltech101", "plantvillage", "cub")
CHARACTERS = ("chars74k",)  # only its test classes: those of EMNIST's validation chose the weights of `characters`
PER_CLASS = 20  # examples that are encoded
QUERIES = 10  # per class and episode
EPISODES = {5: 200, None: 3}  # ways (None: all classes) to number of episodes
SHOTS = (1, 5)
TIMED = 256  # items
OUT = Path(__file__).parent / "results" / "encoders.json"


def hashed_words(texts: list[str]) -> NDArray[np.float32]:
    """Words and pairs of words: what needs no encoder."""
    table = HashingVectorizer(n_features=2048, ngram_range=(1, 2), alternate_sign=False)
    return np.asarray(table.transform(texts).todense(), np.float32)


def thumbnails(images: list[Any]) -> NDArray[np.float32]:
    """16 x 16 pixels about their mean: what needs no encoder."""
    pixels = np.stack([np.asarray(image.resize((16, 16)), np.float32).ravel() for image in images])
    return pixels - pixels.mean(1, keepdims=True)


CANDIDATES: dict[tuple[str, ...], dict[str, Any]] = {
    TEXT: {"hashed words": hashed_words, "wordllama": "wordllama", "minilm": "minilm"},
    IMAGES: {"thumbnails": thumbnails, "mobilenet-v2": "mobilenet-v2", "efficientnet-lite0": "efficientnet-lite0"},
    CHARACTERS: {"thumbnails": thumbnails, "efficientnet-lite0": "efficientnet-lite0", "characters": "characters"},
}


def read(name: str) -> tuple[list[Any], NDArray[np.int64]]:
    """The first examples of each class: texts, JPEG files as bytes, or uint8 pixels."""
    if name in CHARACTERS:
        classes = load(name, "test")
        rows = [row for c in range(len(classes.class_names)) for row in np.flatnonzero(classes.y == c)[:PER_CLASS]]
        return list(classes.x[rows, 0].numpy()), classes.y[rows].numpy()
    with np.load(Path(os.environ["POLYSHOT_DATA"]) / f"{name}.npz") as file:
        labels = file["labels"]
        rows = np.concatenate([np.flatnonzero(labels == c)[:PER_CLASS] for c in range(labels.max() + 1)])
        if name in TEXT:
            return file["texts"][rows].tolist(), labels[rows]
        ends = file["offsets"]
        content = file["jpeg"].tobytes()
        return [content[ends[i] : ends[i + 1]] for i in rows], labels[rows]


def episode(labels: NDArray[np.int64], ways: int, shots: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows of the support and of the queries."""
    support, queries = [], []
    for c in rng.choice(labels.max() + 1, ways, replace=False):
        rows = rng.permutation(np.flatnonzero(labels == c))
        support.append(rows[:shots])
        queries.append(rows[shots : shots + QUERIES])
    return np.concatenate(support), np.concatenate(queries)


def measure(name: str, vectors: NDArray[np.float32], labels: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Mean accuracy and log-loss of every task size, with the standard error over episodes."""
    rows = []
    for ways, n_episodes in EPISODES.items():
        for shots in SHOTS:
            scores = []
            for k in range(n_episodes):
                seed = zlib.crc32(f"{name}/{ways}/{shots}/{k}".encode())
                support, queries = episode(labels, ways or labels.max() + 1, shots, np.random.default_rng(seed))
                model = OneVsEachClassifier().fit(vectors[support], labels[support])
                probabilities = model.predict_proba(vectors[queries])
                right = model.classes_[probabilities.argmax(1)] == labels[queries]
                scores.append([100 * right.mean(), log_loss(labels[queries], probabilities, labels=model.classes_)])
            mean = np.mean(scores, 0)
            error = np.std(scores, 0, ddof=1) / np.sqrt(n_episodes)
            rows.append(
                {
                    "ways": ways or int(labels.max() + 1),
                    "shots": shots,
                    "episodes": n_episodes,
                    "accuracy": round(float(mean[0]), 2),
                    "accuracy_error": round(float(error[0]), 2),
                    "log_loss": round(float(mean[1]), 4),
                    "log_loss_error": round(float(error[1]), 4),
                }
            )
    return rows


def milliseconds(encode: Callable[[list[Any]], Any], items: list[Any]) -> float:
    """Processor time per item, the best of three."""
    encode(items[:2])  # the network is loaded
    times = []
    for _ in range(3):
        start = time.process_time()
        encode(items)
        times.append(time.process_time() - start)
    return round(1000 * min(times) / len(items), 3)


def main(chosen: list[str]) -> None:
    """Measure, keep, print."""
    results = json.loads(OUT.read_text("utf-8"))["results"] if OUT.is_file() and chosen else []
    for sets, candidates in CANDIDATES.items():
        transformer = TextEncoder if sets is TEXT else ImageEncoder
        for name in [name for name in sets if name in (chosen or sets)]:
            results = [entry for entry in results if entry["data"] != name]
            items, labels = read(name)
            for title, model in candidates.items():
                plain = transformer(model, cache=None)
                encoder = plain.encoder
                spent = milliseconds(plain.transform, items[:: max(1, len(items) // TIMED)][:TIMED])
                vectors = transformer(model, cache=os.environ.get("ENCODERS_CACHE")).transform(items)
                entry = {
                    "data": name,
                    "encoder": title,
                    "dimension": encoder.dimension,
                    "licence": encoder.licence,
                    "ms_per_item": spent,
                    "tasks": measure(name, vectors, labels),
                }
                results.append(entry)
                print(json.dumps(entry), flush=True)
    results.sort(key=lambda entry: (*TEXT, *IMAGES, *CHARACTERS).index(entry["data"]))
    content = {"machine": platform.processor() or platform.machine(), "threads": os.environ.get("OMP_NUM_THREADS"),
               "per_class": PER_CLASS, "queries": QUERIES, "results": results}  # fmt: skip
    OUT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(table(content))


def table(content: dict[str, Any]) -> str:
    """Markdown, one line per data set and encoder."""
    lines = [
        "| data | encoder | ms per item | 5-way 1-shot | 5-way 5-shot | all-way 1-shot | all-way 5-shot |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for entry in content["results"]:
        tasks = [f"{task['accuracy']:.1f} / {task['log_loss']:.3f}" for task in entry["tasks"]]
        ways = entry["tasks"][-1]["ways"]
        head = f"{entry['data']} ({ways} classes)", entry["encoder"], f"{entry['ms_per_item']:.2f}"
        lines.append("| " + " | ".join([*head, *tasks]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
