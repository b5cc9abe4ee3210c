from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from polyshot.system.threads import few_threads

SMALL, LARGE = 10**6, 10**10


def blas() -> set[int]:
    np.eye(2) @ np.eye(2)
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_small_work_has_one_thread_and_large_work_all(two_threads) -> None:
    before = blas()
    with few_threads(SMALL):
        assert torch.get_num_threads() == 1
        assert blas() == {1}
        with few_threads(SMALL):
            assert torch.get_num_threads() == 1
        with few_threads(LARGE):
            assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    assert blas() == before
    with few_threads(LARGE):
        assert torch.get_num_threads() == 2


def test_an_error_inside_restores_the_threads(two_threads) -> None:
    with pytest.raises(ZeroDivisionError, match="zero"), few_threads(SMALL):
        _ = 1 / 0
    assert torch.get_num_threads() == 2


def test_python_threads_that_overlap_each_get_back_what_they_had(two_threads) -> None:
    together = Barrier(4)

    def work(_: int) -> tuple[int, int]:
        together.wait()
        with few_threads(SMALL):
            together.wait()  # all are inside
            inside = torch.get_num_threads()
        together.wait()
        return inside, torch.get_num_threads()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [(1, 2)] * 4
    assert torch.get_num_threads() == 2
