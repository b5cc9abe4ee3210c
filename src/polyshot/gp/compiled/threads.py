"""Threads for the compiled loops, which release the GIL. They end with the call that started them.

No thread outlives its call, so that a process forked later finds no pool whose threads it does not have.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from polyshot.errors import InputError
from polyshot.gp.validation import NOT_DEFINITE

# Starting a thread takes about a tenth of a millisecond, as long as some 2e5 operations.
_WORTH_A_THREAD = 1e7


def in_threads(job: Callable[[int, int], int], n_items: int, cost: int) -> None:
    """Run `job(first, last)` over 0..n_items-1, in as many threads as torch may use if the work is large enough.

    `cost` is that of one item, in operations. `job` returns -1 if all went well.
    """
    n_threads = min(torch.get_num_threads(), n_items) if n_items * cost > _WORTH_A_THREAD else 1
    if n_threads == 1:
        results = [job(0, n_items)]
    else:
        bounds = [n_items * k // n_threads for k in range(n_threads + 1)]
        with ThreadPoolExecutor(n_threads - 1) as pool:
            others = [pool.submit(job, bounds[k], bounds[k + 1]) for k in range(1, n_threads)]
            results = [job(bounds[0], bounds[1]), *(other.result() for other in others)]
    if max(results) >= 0:
        raise InputError(NOT_DEFINITE)
