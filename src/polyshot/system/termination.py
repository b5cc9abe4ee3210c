"""End in good order when the system asks for it with SIGTERM."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delayed_sigterm() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGTERM has arrived; inside, the signal has no other effect.

    The caller asks at moments when its work can be saved. Only the main thread can handle signals; in any other thread
    the answer is always False.
    """
    arrived = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield arrived.is_set
        return

    def note(_: int, __: FrameType | None) -> None:
        arrived.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield arrived.is_set
    finally:
        signal.signal(signal.SIGTERM, before)
