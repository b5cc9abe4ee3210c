"""How many examples the fuzz tests try, which errors they allow, and how often each outcome came.

`make test` tries a few hundred examples, the same ones every time. `make fuzz` sets POLYSHOT_FUZZ to the number of
examples per test; they are then drawn at random, and a failure prints how to repeat it.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from sklearn.exceptions import NotFittedError

from polyshot.errors import DataError, InputError, TrainingError

OURS = (InputError, DataError, TrainingError, NotFittedError)
ASKED = os.environ.get("POLYSHOT_FUZZ")

COUNTS: Counter[tuple[str, str]] = Counter()
"""How often (test, outcome) came."""


def fuzz_settings(examples: int, **options: Any) -> settings:
    """Settings of a fuzz test that tries this many examples in `make test`."""
    return settings(
        max_examples=int(ASKED) if ASKED else examples,
        derandomize=not ASKED,
        print_blob=bool(ASKED),
        deadline=None,
        report_multiple_bugs=True,
        phases=[p for p in Phase if p is not Phase.shrink],
        suppress_health_check=list(HealthCheck),
        **options,
    )


def count(outcome: str) -> None:
    """One more outcome of the running test: "answer" or "refusal"."""
    COUNTS[os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)"), outcome] += 1


def assert_explained(error: Exception) -> None:
    """An error says in words what is wrong, and is a ValueError if it is about input or data."""
    assert len(str(error)) > 15, repr(error)
    assert isinstance(error, ValueError | TrainingError), repr(error)


def attempt_file(call: Callable[[], Any], *paths: Path) -> Any:
    """What a reader returns; None if it refused, with an error of ours that names one of the files or folders."""
    try:
        answer = call()
    except OURS as error:
        count("refusal")
        assert_explained(error)
        if paths and not any(path.name in str(error) for path in paths):
            raise AssertionError("the error names no file") from error
        return None
    count("answer")
    return answer
