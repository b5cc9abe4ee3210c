"""One function over many items, in processes."""

import os
import time
from pathlib import Path

import pytest

from polyshot.errors import InputError, TrainingError
from polyshot.system.parallel import map_unordered


def square(x: int) -> tuple[int, int]:
    return x * x, os.getpid()


def refuse(x: int) -> int:
    raise InputError(f"{x} is refused")


def die(_: int) -> None:
    os._exit(3)


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


@pytest.mark.parametrize("n_processes", [1, 2])
def test_every_item_is_computed_once(n_processes: int) -> None:
    done = {item: answer for item, answer in map_unordered(square, range(5), n_processes)}
    assert {item: value for item, (value, _) in done.items()} == {x: x * x for x in range(5)}
    assert (os.getpid() in {pid for _, pid in done.values()}) == (n_processes == 1)


def test_an_error_of_polyshot_in_a_worker_is_raised_here() -> None:
    with pytest.raises(InputError, match="is refused"):
        list(map_unordered(refuse, [1, 2], 2))


def test_a_worker_that_dies_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(TrainingError, match=r"a worker process died.*the same command again to continue"):
        list(map_unordered(die, [1, 2], 2))


def test_the_parent_can_work_while_it_waits(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in "ab"]
    calls = []

    def release() -> None:
        calls.append(1)
        if len(calls) == 2:
            for file in files:
                Path(file).touch()

    assert sorted(item for item, _ in map_unordered(wait_for, files, 2, release)) == files
    assert len(calls) >= 2
