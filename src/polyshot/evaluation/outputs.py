"""A method's predictions for all episodes of a protocol: in chunks, in processes, kept on disk until all are there.

A chunk is computed by one thread whatever the number of processes, and from its own seeds, so that the numbers are
the same to the bit however many processes there are and however often the work was stopped.
"""

import contextlib
import json
import multiprocessing
import pickle
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from polyshot.data import ClassSet, EpisodeSampler
from polyshot.errors import PolyshotError, TrainingError
from polyshot.evaluation.protocols import Chunk, Settings
from polyshot.methods import FewShotMethod
from polyshot.runs.features import on_features
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.system.progress import Progress
from polyshot.system.threads import one_thread
from polyshot.task import Prediction

_AT_ONCE = 20  # episodes of one shape that a method may batch
_EXAMPLES = "examples.npy"


class Predictions(NamedTuple):
    """log_probs and scores [episodes, Q, C], batch after batch, labels [Q] of all, variance [episodes, Q]."""

    log_probs: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    variance: npt.NDArray[np.float64] | None
    seconds: float  # of all processes together


@dataclass(frozen=True)
class _Work:
    """What a process needs in order to compute any chunk; `key` marks the chunks that belong to this work."""

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
        tensors = predict_chunk(self.method, self.samplers[batch], range(first, last))
        save_checkpoint(self.path(number), tensors, {"key": self.key, "seconds": time.monotonic() - start})


def predict_chunk(method: FewShotMethod, sampler: EpisodeSampler, numbers: Sequence[int]) -> dict[str, Tensor]:
    """log_probs and scores [episodes, Q, C] of these episodes, and their variance [episodes, Q] if any."""
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
    settings: Settings,
    folder: Path,
    key: Mapping[str, Any],
    *,
    title: str,
    workers: int = 1,
    quiet: bool = False,
) -> Predictions:
    """Compute what is not in `folder` yet, and read all of it; chunks of another key are computed anew."""
    samplers = settings.samplers(class_set)
    work = _Work(method, samplers, settings.chunks(), folder, json.loads(json.dumps(key)))
    left = [k for k in range(len(work.chunks)) if not work.is_done(k)]
    if left:
        done = settings.batches * settings.episodes - sum(_size(work, k) for k in left)
        with one_thread(), Progress(title, settings.batches * settings.episodes, done, quiet=quiet) as bar:
            if method.embeds_once and _n_images(samplers[0], settings) > len(class_set.x):
                head, features = on_features(method, class_set)
                work = replace(work, method=head, samplers=[s.over(features) for s in samplers])
            n_processes = min(workers, len(left))
            for number in _in_processes(work, left, n_processes) if n_processes > 1 else _here(work, left):
                done += _size(work, number)
                bar.update(done)
    parts = [load_checkpoint(work.path(k)) for k in range(len(work.chunks))]
    whole = {name: torch.cat([tensors[name] for tensors, _ in parts]).numpy() for name in parts[0][0]}
    labels, seconds = samplers[0].indices(0).query_y.numpy(), sum(record["seconds"] for _, record in parts)
    return Predictions(whole["log_probs"], whole["scores"], labels, whole.get("variance"), seconds)


def _size(work: _Work, number: int) -> int:
    _, first, last = work.chunks[number]
    return last - first


def _n_images(sampler: EpisodeSampler, settings: Settings) -> int:
    indices = sampler.indices(0)
    return settings.batches * settings.episodes * (len(indices.support) + len(indices.query))


def _here(work: _Work, numbers: Sequence[int]) -> Iterator[int]:
    for number in numbers:
        work.compute(number)
        yield number


def _in_processes(work: _Work, numbers: Sequence[int], n_processes: int) -> Iterator[int]:
    """Deal the chunks out; a process that loses this one, however it dies, ends after its chunk."""
    class_set = work.samplers[0].class_set
    work.folder.mkdir(parents=True, exist_ok=True)
    np.save(work.folder / _EXAMPLES, class_set.x.numpy())  # mapped, not copied, by every process
    bare = replace(class_set, x=class_set.x[:0])
    pickled = pickle.dumps(replace(work, samplers=[s.over(bare) for s in work.samplers]))
    context = multiprocessing.get_context("spawn")
    processes, ours = [], []
    try:
        for _ in range(n_processes):
            our_end, their_end = context.Pipe()
            process = context.Process(target=_serve, args=(their_end, pickled), daemon=True)
            process.start()
            their_end.close()
            processes.append(process)
            ours.append(our_end)
        yield from _deal(ours, list(numbers))
    finally:
        for end in ours:
            end.close()
        for process in processes:
            process.terminate()
            process.join()
        (work.folder / _EXAMPLES).unlink(missing_ok=True)


def _deal(ends: list[Connection], numbers: list[int]) -> Iterator[int]:
    """Send each process a number, and the next one when it answers; yield what is done."""
    for end in ends:
        end.send(numbers.pop(0))
    busy = list(ends)
    while busy:
        ready = wait(busy)
        for end in [end for end in busy if end in ready]:
            try:
                answer = end.recv()
            except EOFError:
                raise TrainingError(
                    "a worker process died, perhaps for lack of memory; the same command goes on, "
                    "and fewer --workers need less memory"
                ) from None
            if isinstance(answer, Exception):
                raise answer
            if numbers:
                end.send(numbers.pop(0))
            else:
                busy.remove(end)
            yield answer


def _serve(end: Connection, pickled: bytes) -> None:
    """A worker process: compute the chunks that it is sent the numbers of."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the first process ends the others
    work: _Work = pickle.loads(pickled)
    class_set = work.samplers[0].class_set
    whole = replace(class_set, x=torch.from_numpy(np.load(work.folder / _EXAMPLES, mmap_mode="c")))
    work = replace(work, samplers=[s.over(whole) for s in work.samplers])
    with one_thread(), contextlib.suppress(EOFError, ConnectionError):
        while True:
            number = end.recv()
            try:
                work.compute(number)
                end.send(number)
            except PolyshotError as error:
                end.send(error)
