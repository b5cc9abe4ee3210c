"""How many examples the fuzz tests try, and which errors they allow.

`make test` tries a few hundred examples, the same ones every time. `make fuzz` sets POLYSHOT_FUZZ to the number of
examples per test; they are then drawn at random, and a failure prints how to repeat it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from sklearn.exceptions import NotFittedError

from polyshot.errors import DataError, InputError, TrainingError

OURS = (InputError, DataError, TrainingError, NotFittedError)
_ASKED = os.environ.get("POLYSHOT_FUZZ")


def fuzz_settings(examples: int, **options: Any) -> settings:
    """Settings of a fuzz test that tries this many examples in `make test`."""
    return settings(
        max_examples=int(_ASKED) if _ASKED else examples,
        derandomize=not _ASKED,
        print_blob=bool(_ASKED),
        deadline=None,
        report_multiple_bugs=True,
        phases=[p for p in Phase if p is not Phase.shrink],
        suppress_health_check=list(HealthCheck),
        **options,
    )


def assert_explained(error: Exception) -> None:
    """An error says in words what is wrong, and is a ValueError if it is about input or data."""
    assert len(str(error)) > 15, repr(error)
    assert isinstance(error, ValueError | TrainingError), repr(error)


def attempt_file(call: Callable[[], Any], *paths: Path) -> Any:
    """What a reader returns; None if it refused, with an error of ours that names one of the files or folders."""
    try:
        return call()
    except OURS as error:
        assert_explained(error)
        if paths and not any(path.name in str(error) for path in paths):
            raise AssertionError("the error names no file") from error
    return None
