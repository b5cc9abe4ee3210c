"""Processes for tests, forked from a server that has imported polyshot: importing it takes longer than most work.

Code in them is not type-checked as in the test run. Where Python cannot fork, they are spawned.
"""

import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_CONTEXT = multiprocessing.get_context(_METHOD)
# torch._dynamo comes with the first optimizer; below torch 2.10 it makes a temporary folder, which a full disk forbids.
_CONTEXT.set_forkserver_preload(
    [
        "pytest", "polyshot.app", "polyshot.cli", "polyshot.encoders", "polyshot.estimator", "polyshot.report",
        "polyshot.evaluation.evaluate", "polyshot.runs.trainer", "processes", "commands", "torch._dynamo",
    ]
)  # fmt: skip

# No test cuts the power, so nothing has to be on the disk at once. Conftest.py and the server import this file.
os.fsync = lambda file: None


class Done(NamedTuple):
    """How a command ended: its exit code, and what it printed on both streams."""

    code: int | None
    output: str


class Processes:
    """What tests and workers need of multiprocessing."""

    Pipe = staticmethod(_CONTEXT.Pipe)

    @staticmethod
    def Process(
        target: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Any = None, daemon: bool | None = None
    ) -> Any:
        """A process with the environment and the working directory of this one."""
        here = dict(os.environ), os.getcwd()
        return _CONTEXT.Process(target=_call, args=(*here, target, args, kwargs or {}), daemon=daemon)


def start_polyshot(folder: Path, words: list[str], output: Path, environment: Mapping[str, str] | None = None) -> Any:
    """Start `polyshot WORDS` in a folder, as a process that prints into the file `output`."""
    process = Processes.Process(_polyshot, (folder, words, output, environment or {}))
    process.start()
    return process


def polyshot(folder: Path, *words: str) -> Done:
    """Run `polyshot WORDS` in a folder."""
    with tempfile.TemporaryDirectory() as own:
        output = Path(own) / "output"
        process = start_polyshot(folder, [*words], output)
        process.join()
        return Done(process.exitcode, output.read_text("utf-8"))


def wait_for(pattern: str, output: Path, process: Any) -> str:
    """The first group of a pattern, as soon as the process has printed it."""
    while not (found := re.search(pattern, output.read_text("utf-8") if output.exists() else "")):
        assert process.is_alive(), output.read_text("utf-8")
        time.sleep(0.01)
    return found[1]


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module returns in another process."""
    with _CONTEXT.Pool(1) as pool:
        return pool.apply(function, arguments)


def _call(environment: dict[str, str], folder: str, target: Callable[..., Any], args: Any, kwargs: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    target(*args, **kwargs)


def _polyshot(folder: Path, words: list[str], output: Path, environment: Mapping[str, str]) -> None:
    from polyshot.__main__ import main

    os.chdir(folder)
    os.environ |= environment
    with output.open("wb") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
            stream.reconfigure(encoding="utf-8", line_buffering=True)
    sys.argv = ["polyshot", *words]
    main()
