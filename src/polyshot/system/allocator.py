"""Freed memory is kept for the next step."""

import ctypes
import sys

# mallopt's parameters, of glibc's malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """Have glibc keep large freed arrays rather than hand them back; where there is no glibc, nothing is changed.

    A training step frees and asks again for the same hundreds of megabytes, and fresh pages must be zeroed: that is a
    quarter to a half of a step. It holds for the whole process, so only commands ask for it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)
