"""Freed arrays stay with the process: asking for them again touches no fresh page."""

import platform
import subprocess
import sys

import pytest

_COUNT = """
import resource, sys, torch, polyshot.cli  # as a command has them: the state of the heap matters
from polyshot.system.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(3):
    torch.ones(2**25)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    torch.ones(2**25)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def fresh_pages(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", _COUNT, how], capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_freed_arrays_are_used_again() -> None:
    assert fresh_pages("keep") < 100
    assert fresh_pages("as it is") > 200
