"""How many threads torch and BLAS may use: one where results must agree to the bit, and one for small work."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock, local
from typing import Any

import torch
from threadpoolctl import ThreadpoolController, threadpool_limits  # type: ignore[import-untyped]

# Operations, as a factorisation of 1,000 examples has. One thread takes less than 0.1 s for them. Two threads save
# little of that on an idle machine, and on a busy one they wait for each other for seconds.
_SMALL = 1_000_000_000


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of torch and of numpy's BLAS inside; another number of threads changes sums in the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


class _SmallWork:
    """Counts who is inside, because BLAS has one thread count per process: first in sets it, last out restores it."""

    def __init__(self) -> None:
        self.lock, self.inside, self.threads, self.forked = Lock(), 0, 1, False
        self.blas: AbstractContextManager[Any] = nullcontext()
        self.of_this_thread = local()

    def enter(self) -> int:
        """One thread from here on; returns torch's number for this Python thread to restore."""
        with self.lock:
            mine = torch.get_num_threads()
            if self.inside == 0:
                self.threads = mine
                self.blas = _blas().limit(limits=1)
                self.blas.__enter__()
            elif mine == 1:  # a new Python thread inherits torch's number, which another thread has lowered
                mine = self.threads
            self.inside += 1
            self.of_this_thread.inside = True
            torch.set_num_threads(1)
        return mine

    def leave(self, threads: int) -> None:
        """Restore what `enter` returned."""
        with self.lock:
            self.inside -= 1
            self.of_this_thread.inside = False
            torch.set_num_threads(threads)
            if self.inside == 0:
                self.blas.__exit__(None, None, None)

    def after_fork(self) -> None:
        """Start again in a forked child, where the parent's other threads, and their locks, are gone."""
        self.__init__()  # type: ignore[misc]
        self.forked = True


_small_work = _SmallWork()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_small_work.after_fork)


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; looking for them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def few_threads(cost: int) -> Iterator[None]:
    """One thread of torch and BLAS inside if the work is small, all of them otherwise; restored afterwards.

    Threads that wait for each other make small matrices a hundred times slower when another process is busy. In a
    forked child there is always one thread, because torch's other threads do not survive a fork.

    Parameters
    ----------
    cost : int
        Operations of the largest step inside, such as N^3 for a factorisation.
    """
    large = cost > _SMALL and not _small_work.forked
    if large or getattr(_small_work.of_this_thread, "inside", False):
        yield
        return
    threads = _small_work.enter()
    try:
        yield
    finally:
        _small_work.leave(threads)
