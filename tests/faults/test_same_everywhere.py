"""A trained run answers the same in threads, other processes and after a fork, and keeps nothing of past episodes."""

import gc
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from polyshot.data import EpisodeSampler, load_scenario
from polyshot.evaluation.outputs import predict_chunk
from polyshot.runs.folder import RunFolder
from polyshot.runs.trained import load
from small_runs import SMALL

X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
LABELS = ["a", "b", "c", "d"] * 2


def answers(run: Path) -> bytes:
    """The bits of the predictions."""
    return load(run).adapt(X, LABELS).predict(X).log_probs.numpy().tobytes()


def test_four_threads_get_the_same_bits(inputs: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(answers, [inputs / "run"] * 8)) == {answers(inputs / "run")}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_other_processes_get_the_same_bits(method: str, inputs: Path) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    expected = answers(inputs / "run")
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply_async(answers, (inputs / "run",)).get(120) == expected


def test_an_evaluation_keeps_nothing_of_past_episodes(inputs: Path) -> None:
    config, (method, _) = RunFolder(inputs / "run").config, RunFolder(inputs / "run").load_method()
    sampler = EpisodeSampler(load_scenario(config.scenario).test, SMALL["ways"], SMALL["shots"], 3, 0)

    def after(last: int) -> int:
        """Tensors alive."""
        for first in range(last - 40, last, 20):
            predict_chunk(method, sampler, range(first, first + 20))
        gc.collect()
        return sum(issubclass(type(thing), Tensor | np.ndarray) for thing in gc.get_objects())

    assert after(40) == after(80) == after(120)
    assert torch.get_num_threads() == 1
