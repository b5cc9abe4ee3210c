"""Threads for the compiled loops, which release the GIL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

from polyshot.errors import InputError
from polyshot.gp.validation import NOT_DEFINITE

# To wake a thread takes a tenth of a millisecond.
_WORTH_A_THREAD = 4e6


def in_threads(job: Callable[[int, int], int], n_items: int, cost: int) -> None:
    """Run `job(first, last)` over 0..n_items-1, in as many threads as torch may use where that pays.

    `cost` is that of an item, in operations; `job` returns -1 if all went well.
    """
    threads = torch.get_num_threads() if n_items * cost > _WORTH_A_THREAD else 1
    n_threads = max(1, min(threads, n_items))
    bounds = [n_items * k // n_threads for k in range(n_threads + 1)]
    others = [_pool(n_threads).submit(job, bounds[k], bounds[k + 1]) for k in range(1, n_threads)]
    results = [job(bounds[0], bounds[1]), *(other.result() for other in others)]
    if max(results) >= 0:
        raise InputError(NOT_DEFINITE)


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, n_threads - 1), thread_name_prefix="polyshot")
