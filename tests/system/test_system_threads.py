import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from polyshot.system.threads import one_thread


def threads() -> list[int]:
    """Of torch, and of every library of linear algebra that is loaded."""
    np.eye(2) @ np.eye(2)
    return [torch.get_num_threads(), *(library["num_threads"] for library in threadpool_info())]


@one_thread()
def count_and_fail(seen: list[int]) -> None:
    seen += threads()
    raise ZeroDivisionError


def test_there_is_one_thread_inside_and_as_many_as_before_after_an_error_too() -> None:
    torch.set_num_threads(2)
    try:
        before, seen = threads(), []
        with pytest.raises(ZeroDivisionError):
            count_and_fail(seen)
        assert set(seen) == {1}
        assert threads() == before
        assert before[0] == 2
    finally:
        torch.set_num_threads(1)
