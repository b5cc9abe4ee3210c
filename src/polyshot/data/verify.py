"""Is a data set what it should be? Fields, counts, splits, checksums, and that every image decodes."""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyshot.data.packed import Packed, checksum, own_checksums
from polyshot.data.registry import find_dataset, find_splits, read_dataset
from polyshot.errors import DataError


class Check(NamedTuple):
    """One thing that was looked at; `detail` says what was found, and what was expected if it failed."""

    what: str
    passed: bool
    detail: str


def verify(name: str, root: Path | str | None = None) -> list[Check]:
    """All checks of one data set; a file that is missing or malformed raises DataError."""
    packed = read_dataset(name, root)
    return [*_counts(name, packed), *_splits(name, packed, root), _checksums(packed), _decoding(packed)]


def _counts(name: str, packed: Packed) -> Iterator[Check]:
    dataset = find_dataset(name)
    sizes = np.bincount(packed.labels[packed.labels >= 0], minlength=len(packed.class_names))
    empty = [packed.class_names[c] for c in np.flatnonzero(sizes == 0)]
    yield _count("classes", len(sizes), dataset.n_classes)
    # the packed Tiny-ImageNet may be cut down, so that its number of images is not fixed
    yield _count("examples", len(packed), dataset.n_examples)
    yield Check(
        "examples a class",
        not empty,
        f"{sizes.min()} to {sizes.max()}{'; none in ' if empty else ''}{', '.join(empty)}",
    )


def _splits(name: str, packed: Packed, root: Path | str | None) -> Iterator[Check]:
    splits = find_splits(name, root)
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
    """Against the checksums the file carries, or those we recorded for files made by hand."""
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
        return Check("every example reads", False, str(error))
    return Check("every example reads", True, f"each of shape {shape}")


def _count(what: str, found: int, expected: int | None) -> Check:
    good = expected is None or found == expected
    return Check(what, good, f"{found:,}" if good else f"{found:,}, and {expected:,} were expected")
