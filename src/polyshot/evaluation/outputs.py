"""A method's predictions for all episodes of a protocol: in chunks, in several processes, kept until all are there.

Each chunk is computed by one thread and from its own seeds. So the numbers are the same to the bit for any number of
processes, and however often the work was interrupted.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyshot.data import ClassSet, EpisodeSampler
from polyshot.evaluation.measures import Predictions
from polyshot.evaluation.protocols import Chunk, ProtocolSettings
from polyshot.methods import FewShotMethod
from polyshot.runs.features import on_features
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.system.files import replacing
from polyshot.system.parallel import map_unordered
from polyshot.system.progress import Progress
from polyshot.system.threads import one_thread
from polyshot.task import Prediction

_AT_ONCE = 20  # episodes of one shape that a method may process in one batch


@dataclass(frozen=True)
class _Work:
    """All that a process needs to compute any chunk; `key` marks the chunks that belong to this work."""

    method: FewShotMethod
    samplers: list[EpisodeSampler]
    chunks: list[Chunk]
    folder: Path
    key: dict[str, Any]

    def path(self, number: int) -> Path:
        return self.folder / f"{number:04d}.safetensors"

    def is_done(self, number: int) -> bool:
        return self.path(number).exists() and load_checkpoint(self.path(number))[1].get("key") == self.key

    def compute(self, number: int) -> None:
        start = time.monotonic()
        batch, first, last = self.chunks[number]
        with one_thread():
            tensors = predict_chunk(self.method, self.samplers[batch], range(first, last))
        save_checkpoint(self.path(number), tensors, {"key": self.key, "seconds": time.monotonic() - start})


class _InWorkers:
    """`compute` for other processes: each maps the examples from a file instead of being sent a copy."""

    def __init__(self, work: _Work, file: Path) -> None:
        self._file = file
        self._bare = _over(work, work.samplers[0].class_set.x[:0])
        self._work: _Work | None = None

    def __call__(self, number: int) -> None:
        if self._work is None:
            self._work = _over(self._bare, torch.from_numpy(np.load(self._file, mmap_mode="c")))
        self._work.compute(number)


def predict_chunk(method: FewShotMethod, sampler: EpisodeSampler, numbers: Sequence[int]) -> dict[str, Tensor]:
    """Predict these episodes: log_probs and scores [episodes, Q, C], and variance [episodes, Q] if there is one."""
    parts = []
    for first in range(0, len(numbers), _AT_ONCE):
        some = numbers[first : first + _AT_ONCE]
        seeds = [np.random.default_rng((sampler.seed, k, 1)) for k in some]
        parts += method.predict_episodes([sampler[k] for k in some], seeds)
    columns = zip(Prediction._fields, zip(*parts, strict=True), strict=True)
    return {name: torch.stack(column).double() for name, column in columns if column[0] is not None}


def predict_all(
    method: FewShotMethod,
    class_set: ClassSet,
    settings: ProtocolSettings,
    folder: Path,
    key: Mapping[str, Any],
    *,
    title: str,
    workers: int = 1,
    quiet: bool = False,
) -> Predictions:
    """Compute the chunks that are not in `folder` yet, and read all of them.

    Parameters
    ----------
    method : FewShotMethod
    class_set : ClassSet
        The test classes.
    settings : ProtocolSettings
    folder : Path
        Where finished chunks are kept.
    key : mapping
        What the predictions depend on; chunks of another key are computed again.
    title : str
        Of the progress bar.
    workers : int
        Number of processes.
    quiet : bool
        Show no progress.
    """
    samplers = settings.samplers(class_set)
    work = _Work(method, samplers, settings.chunks(), folder, json.loads(json.dumps(key)))
    left = [k for k in range(len(work.chunks)) if not work.is_done(k)]
    if left:
        _compute(work, left, settings.n_episodes, title, workers, quiet)
    parts = [load_checkpoint(work.path(k)) for k in range(len(work.chunks))]
    whole = {name: torch.cat([tensors[name] for tensors, _ in parts]).numpy() for name in parts[0][0]}
    labels, seconds = samplers[0].indices(0).query_y.numpy(), sum(record["seconds"] for _, record in parts)
    return Predictions(labels=labels, seconds=seconds, **whole)


def _compute(work: _Work, left: Sequence[int], n_episodes: int, title: str, workers: int, quiet: bool) -> None:
    done = n_episodes - sum(_size(work, k) for k in left)
    with Progress(title, n_episodes, done, quiet=quiet) as bar:
        sampler = work.samplers[0]
        indices = sampler.indices(0)
        n_examples = n_episodes * (len(indices.support) + len(indices.query))
        if work.method.embeds_once and n_examples > len(sampler.class_set.x):
            with one_thread():
                head, features = on_features(work.method, sampler.class_set)
            work = replace(work, method=head, samplers=[s.over(features) for s in work.samplers])
        for number in _finished_chunks(work, left, workers):
            done += _size(work, number)
            bar.update(done)


def _finished_chunks(work: _Work, left: Sequence[int], workers: int) -> Iterator[int]:
    """Compute the chunks and yield the number of each as it is done."""
    if min(workers, len(left)) == 1:
        yield from (number for number, _ in map_unordered(work.compute, left))
        return
    file = work.folder / "examples.npy"
    with replacing(file) as stream:
        np.save(stream, work.samplers[0].class_set.x.numpy())
    try:
        yield from (number for number, _ in map_unordered(_InWorkers(work, file), left, workers))
    finally:
        file.unlink(missing_ok=True)


def _over(work: _Work, x: Tensor) -> _Work:
    """The same work with these examples in place of its own."""
    return replace(work, samplers=[s.over(replace(s.class_set, x=x)) for s in work.samplers])


def _size(work: _Work, number: int) -> int:
    _, first, last = work.chunks[number]
    return last - first
