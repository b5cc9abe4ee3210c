"""Commands keep freed memory: asking for the same arrays again touches no fresh page."""

import platform
import subprocess
import sys

import pytest

# The command runs as usual, with its own imports, but for the work at its end: the state of the heap matters.
_COUNT = """
import resource, sys, torch
import {module} as module
from polyshot.cli import app
from polyshot.system import allocator

def count(*_, **__):
    for _ in range(40):  # small arrays take corners of freed ones; after a few rounds all have found their place
        torch.ones(2**24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(2**24)
    print("fresh pages", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    sys.exit()

module.{function} = count
if not {keep}:
    allocator.keep_freed_memory = lambda: None
app({arguments})
"""
_COMMANDS = {
    "train": (
        "polyshot.runs.trainer",
        "train",
        ["train", "--method", "protonet", "--scenario", "glyphs", "--out", "x"],
    ),
    "evaluate": ("polyshot.evaluation.evaluate", "evaluate", ["evaluate", "x"]),
}


def fresh_pages(command: str, keep: bool) -> int:
    module, function, arguments = _COMMANDS[command]
    code = _COUNT.format(module=module, function=function, keep=keep, arguments=arguments)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    return int(shown.removeprefix("fresh pages "))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
@pytest.mark.parametrize("command", _COMMANDS)
def test_freed_arrays_are_used_again(command: str) -> None:
    assert fresh_pages(command, keep=True) < 100


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_without_the_setting_they_are_not() -> None:
    assert fresh_pages("train", keep=False) > 200
