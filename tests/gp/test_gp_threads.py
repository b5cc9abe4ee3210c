import os
import subprocess
import sys
import threading

import pytest
import torch

from polyshot.errors import InputError
from polyshot.gp.compiled.threads import in_threads

LARGE = 10**9


@pytest.fixture
def three_threads():
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


def seen(n_items, cost):
    """The parts of 0..n_items-1 that a job is called with, and the threads that it is called in."""
    parts, threads = [], set()

    def job(first, last):
        parts.append((first, last))
        threads.add(threading.get_ident())
        return -1

    in_threads(job, n_items, cost)
    return sorted(parts), threads


def test_small_work_stays_on_the_calling_thread(three_threads):
    parts, threads = seen(1000, cost=100)
    assert parts == [(0, 1000)]
    assert threads == {threading.get_ident()}


def test_large_work_is_shared_out_and_leaves_no_thread_behind(three_threads):
    before = threading.active_count()
    parts, _ = seen(10, LARGE)
    assert parts == [(0, 3), (3, 6), (6, 10)]
    assert threading.active_count() == before


def test_a_failure_in_any_thread_is_an_error(three_threads):
    with pytest.raises(InputError, match="not positive semi-definite"):
        in_threads(lambda first, last: 4 if first > 0 else -1, 6, LARGE)


FORK = """
import os, signal
import numpy as np, torch
from polyshot.gp.compiled.threads import in_threads
torch.set_num_threads(2)
def threaded():
    out = np.zeros(8)
    def job(first, last):
        out[first:last] = 1
        return -1
    in_threads(job, 8, 10**9)
    return int(out.sum())
assert threaded() == 8
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if threaded() == 8 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_runs_threaded_work_after_its_parent_did():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
