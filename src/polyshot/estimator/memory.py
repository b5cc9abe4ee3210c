"""Whether there is memory for a fit, asked before the first large allocation."""

import contextlib
import os
from contextlib import AbstractContextManager
from pathlib import Path

from polyshot.errors import InputError
from polyshot.estimator.inference import INFERENCES, ChainOptions
from polyshot.gp import NUMBERS_AT_ONCE
from polyshot.system.threads import few_threads

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def needed_bytes(
    inference: str, n: int, n_way: int, n_features: int, options: ChainOptions, by_features: int = 0
) -> float:
    """Peak memory of a fit beyond the data: the large terms with the factors that were measured.

    docs/estimator.md and docs/estimator-size.md have the measurements. `by_features` is how many features stand for the
    N x N matrix; 0 if none do.
    """
    if by_features:
        numbers = n * (4.0 * by_features + 3.0 * n_features + 30.0 * n_way) + (n_way + 10.0) * by_features**2
    else:
        numbers = 12.0 * n * n + 60.0 * n * n_way + 8.0 * n * n_features + 6 * min(NUMBERS_AT_ONCE, n * n_way**2)
    return 8 * (numbers + INFERENCES[inference].numbers(n, n_way, options))


def memory_bytes() -> float:
    """Memory of the machine, or of the container if that has less; infinite if the system reports neither."""
    sizes = [float("inf")]
    with contextlib.suppress(AttributeError, ValueError):  # only Unix has sysconf
        sizes.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        sizes.append(float(_CONTAINER_LIMIT.read_text()))
    return min(sizes)


def check_joint_matrix(n: int) -> None:
    """Refuse the N x N matrix of a query and all examples, which every conformal answer needs, if it would not fit."""
    needed, available = 4 * 8.0 * n**2, memory_bytes()
    if needed > 0.8 * available:
        raise InputError(
            f"p-values from {n:,} examples need about {needed / 2**30:,.1f} GB, but this machine has "
            f"{available / 2**30:,.1f} GB; fit a part of the examples for them"
        )


def resources(
    inference: str, n: int, n_way: int, n_features: int, options: ChainOptions, by_features: int
) -> AbstractContextManager[None]:
    """Memory enough for a fit, or an error; and threads, if the work is worth them."""
    needed = needed_bytes(inference, n, n_way, n_features, options, by_features)
    available = memory_bytes()
    if needed > 0.8 * available:
        cheapest = INFERENCES[inference] == INFERENCES["auto"]
        advice = "" if cheapest else ' or use inference="propagation"'
        raise InputError(
            f"{n:,} examples of {n_way:,} classes need about {needed / 2**30:,.1f} GB with inference={inference!r}, "
            f"but this machine has {available / 2**30:,.1f} GB; fit fewer examples per class{advice}"
        )
    by_matrix = n**2 * max(INFERENCES[inference].systems(n_way, options.n_chains) * n, n_features)
    return few_threads(n * by_features**2 if by_features else by_matrix)
