"""Keep freed memory for the next training step."""

import ctypes
import sys

# parameters of mallopt, from glibc's malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """Let glibc keep large freed arrays instead of returning them to the system; without glibc, do nothing.

    Every training step frees and requests the same hundreds of megabytes, and the system must zero new pages: that
    takes a quarter to a half of a step. The setting holds for the whole process, so only commands make it. They do so
    after their imports, because before torch is loaded it has no effect.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)
