"""Call one function on many items, in several processes.

Workers are spawned, not forked, so that they inherit no thread or lock. They are daemonic: they end with their parent,
and cannot start processes themselves. If the parent is killed, a worker ends after its current item, when it finds its
pipe closed.
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
_WAIT_SECONDS = 0.5


def map_unordered(
    function: Callable[[Item], Any],
    items: Sequence[Item],
    n_processes: int = 1,
    while_waiting: Callable[[], None] | None = None,
) -> Iterator[tuple[Item, Any]]:
    """Yield (item, function(item)) as soon as each is done; with one process, in this process and in order.

    Parameters
    ----------
    function, items
        Both are pickled for the workers. An error of polyshot in a worker is raised here.
    n_processes : int
        At most one per item is started.
    while_waiting : callable, optional
        Called about twice a second while the workers are busy, for instance to show their progress.
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
        yield from _deal(ours, list(items), while_waiting)
    finally:
        for end in ours:
            end.close()
        for process in processes:
            process.terminate()
            process.join()


def _deal(
    ends: list[Connection], items: list[Item], while_waiting: Callable[[], None] | None
) -> Iterator[tuple[Item, Any]]:
    """Send each worker an item, and the next one when it answers; yield what is done."""
    sent: dict[Connection, Item] = {}
    for end in ends:
        sent[end] = items.pop(0)
        end.send(sent[end])
    while sent:
        ready = wait(list(sent), _WAIT_SECONDS if while_waiting else None)
        if while_waiting:
            while_waiting()
        for end in [end for end in ready if isinstance(end, Connection)]:
            item = sent.pop(end)
            try:
                answer = end.recv()
            except EOFError:
                raise TrainingError(
                    "a worker process died, perhaps for lack of memory; run the same command again to continue, "
                    "with fewer workers if memory is short"
                ) from None
            if isinstance(answer, PolyshotError):
                raise answer
            if items:
                sent[end] = items.pop(0)
                end.send(sent[end])
            yield item, answer


def _serve(end: Connection, content: bytes) -> None:
    """Run a worker: answer every item with the function's value, or with the error of polyshot that it raised."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends its workers
    function = pickle.loads(content)  # nosec B301 # from our own parent process, through a pipe
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            item = end.recv()
            try:
                answer = function(item)
            except PolyshotError as error:
                answer = error
            end.send(answer)
