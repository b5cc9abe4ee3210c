"""Whether a data set is what it should be: fields, counts, splits, checksums, and that every image decodes."""

import json
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyshot.data.dataset import DataSet
from polyshot.data.loading import find_splits, read_dataset
from polyshot.data.packed import Packed, checksum, own_checksums
from polyshot.data.registry import find_dataset
from polyshot.errors import DataError


class Check(NamedTuple):
    """One thing that was checked; `detail` says what was found, and what was expected if it failed."""

    what: str
    passed: bool
    detail: str


def verify(name: str, root: Path | str | None = None) -> list[Check]:
    """Check a data set: counts and edition, splits, checksums, and that every example can be read.

    Parameters
    ----------
    name : str
        A registered data set, `folder:PATH` or `embeddings:PATH`.
    root : path, optional
        The folder of packed files; else $POLYSHOT_DATA, else the user's cache folder.

    Returns
    -------
    list of Check
        Every check with its outcome. A file that is missing or malformed raises DataError.
    """
    dataset, packed = find_dataset(name), read_dataset(name, root)
    return [*_counts(dataset, packed), *_splits(dataset, packed), _checksums(packed), _decoding(packed)]


def _counts(dataset: DataSet, packed: Packed) -> Iterator[Check]:
    sizes = np.bincount(packed.labels[packed.labels >= 0], minlength=len(packed.class_names))
    empty = [packed.class_names[c] for c in np.flatnonzero(sizes == 0)]
    equal = sorted(key for key, n in Counter(packed.class_keys).items() if n > 1)
    yield _count("classes", len(sizes), dataset.n_classes)
    yield Check(
        "class names", not equal, f"more than one class is called {', '.join(equal)}" if equal else "all differ"
    )
    yield _edition(dataset, len(packed))
    yield Check(
        "examples per class",
        not empty,
        f"{sizes.min()} to {sizes.max()}{'; none in ' if empty else ''}{', '.join(empty)}",
    )


def _edition(dataset: DataSet, found: int) -> Check:
    edition = dataset.edition(found)
    if edition is None and dataset.editions:
        expected = " or ".join(f"{size:,} ({name})" for name, size in dataset.editions.items())
        return Check("examples", False, f"{found:,}, but expected {expected}")
    return Check("examples", True, edition or f"{found:,}")


def _splits(dataset: DataSet, packed: Packed) -> Iterator[Check]:
    splits = find_splits(dataset, packed)
    for split in splits.members:
        try:
            classes = splits.classes(split, packed)
        except DataError as error:
            yield Check(f"split {split}", False, str(error))
            continue
        yield _count(f"split {split}", len(classes), splits.counts.get(split))
    if unknown := splits.unknown(packed):
        yield Check("split entries", False, f"no such class: {', '.join(unknown)}")


def _checksums(packed: Packed) -> Check:
    """Against the checksums in the file, or those that this package has recorded for it."""
    recorded = json.loads(files("polyshot.data").joinpath("checksums.json").read_text())
    expected = own_checksums(packed) or recorded.get(packed.source.name, {})
    wrong = [f for f, s in expected.items() if f not in packed.arrays or checksum(packed.arrays[f]) != s]
    if wrong:
        return Check("checksums", False, f"not as recorded: {', '.join(wrong)}")
    return Check("checksums", True, f"{len(expected)} fields agree" if expected else "none recorded for this file")


def _decoding(packed: Packed) -> Check:
    try:
        shape = list(packed.examples(np.arange(len(packed))).shape[1:])
    except DataError as error:
        return Check("every example can be read", False, str(error))
    return Check("every example can be read", True, f"each of shape {shape}")


def _count(what: str, found: int, expected: int | None) -> Check:
    good = expected is None or found == expected
    return Check(what, good, f"{found:,}" if good else f"{found:,}, but expected {expected:,}")
