"""One function over many items, in processes of their own.

Workers are spawned, not forked, so that no thread or lock is inherited. A worker that loses its parent, however the
parent died, ends after the item it is working on: it then reads the end of its pipe.
"""

import contextlib
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from polyshot.errors import PolyshotError, TrainingError

Item = TypeVar("Item")


def map_unordered(
    function: Callable[[Item], Any], items: Sequence[Item], n_processes: int = 1
) -> Iterator[tuple[Item, Any]]:
    """Yield (item, function(item)) as each is done; with one process, here and in order.

    The function and the items are pickled for the workers. An error of polyshot in a worker is raised here.
    """
    n_processes = min(n_processes, len(items))
    if n_processes <= 1:
        for item in items:
            yield item, function(item)
        return
    context = multiprocessing.get_context("spawn")
    content = pickle.dumps(function)
    processes, ours = [], []
    try:
        for _ in range(n_processes):
            our_end, their_end = context.Pipe()
            process = context.Process(target=_serve, args=(their_end, content), daemon=True)
            process.start()
            their_end.close()
            processes.append(process)
            ours.append(our_end)
        yield from _deal(ours, list(items))
    finally:
        for end in ours:
            end.close()
        for process in processes:
            process.terminate()
            process.join()


def _deal(ends: list[Connection], items: list[Item]) -> Iterator[tuple[Item, Any]]:
    """Send each worker an item, and the next one when it answers; yield what is done."""
    sent: dict[Connection, Item] = {}
    for end in ends:
        sent[end] = items.pop(0)
        end.send(sent[end])
    while sent:
        for end in [end for end in wait(list(sent)) if isinstance(end, Connection)]:
            item = sent.pop(end)
            try:
                answer = end.recv()
            except EOFError:
                raise TrainingError(
                    "a worker process died, perhaps for lack of memory; run the same command again to go on, "
                    "with fewer workers to need less memory"
                ) from None
            if isinstance(answer, PolyshotError):
                raise answer
            if items:
                sent[end] = items.pop(0)
                end.send(sent[end])
            yield item, answer


def _serve(end: Connection, content: bytes) -> None:
    """A worker: answer every item with the function's value, or with the error of polyshot that it raised."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    function = pickle.loads(content)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            item = end.recv()
            try:
                answer = function(item)
            except PolyshotError as error:
                answer = error
            end.send(answer)
