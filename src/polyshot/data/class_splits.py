"""Class splits: which classes are for training, which for validation, which for testing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from polyshot.data.packed import Packed
from polyshot.errors import DataError

_BY_NUMBER = {"train": (2, 0), "validation": (4, 1), "test": (4, 3)}  # split: (period, remainder)


@dataclass(frozen=True)
class Splits:
    """Class splits by name.

    Parameters
    ----------
    members : mapping of str to sequence of str
        The classes of each split. An entry is a class key, or the group before the "/" of several keys. Without
        members, classes are split by their number, by CUB's rule.
    counts : mapping of str to int
        The number of classes that each split should have, where it is known.
    provenance : str
        Where the splits come from, for people to read.
    """

    members: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    provenance: str = "by class number i: train i%2=0, validation i%4=1, test i%4=3"

    @classmethod
    def parse(cls, text: str, source: str) -> "Splits":
        """Read JSON: {"provenance": ..., "splits": {"train": [...], ...}}, or the inner part alone."""
        try:
            content = json.loads(text)
            members = content.get("splits", content)
            about = content if "splits" in content else {}
            counts = about.get("counts", {})
            well_formed = all(type(count) is int for count in counts.values()) and all(
                isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)
                for entries in members.values()
            )
        except (ValueError, AttributeError, TypeError, RecursionError):
            well_formed = False
        if not well_formed:
            raise DataError(
                f'{source}: not a split file; it must be JSON like {{"train": ["class", ...], "test": [...]}}'
            )
        if not members:
            return cls()
        return cls(members, counts, str(about.get("provenance", source)))

    @classmethod
    def read(cls, path: Path) -> "Splits":
        """Read a split file."""
        return cls.parse(path.read_text(encoding="utf-8", errors="replace"), str(path))

    @classmethod
    def packaged(cls, name: str) -> "Splits":
        """Read the split file of that name in this package."""
        return cls.read(Path(str(files("polyshot.data").joinpath("splits", f"{name}.json"))))

    def classes(self, split: str, packed: Packed) -> npt.NDArray[np.int64]:
        """Return the label numbers of the classes in `split`; the split `all` has every class."""
        n_classes = len(packed.class_keys)
        if split == "all":
            return np.arange(n_classes)
        if not self.members and split in _BY_NUMBER:
            period, remainder = _BY_NUMBER[split]
            return np.arange(remainder, n_classes, period)
        if split not in self.members:
            raise DataError(
                f"{packed.source}: unknown class split {split!r}; choose from {', '.join(self.names)}. To add a split "
                "to your own data, name it in splits.json in your folder, or in NAME_splits.json beside your NAME.npz"
            )
        found = self._listed(split, packed)
        if not found:
            raise DataError(f"{packed.source}: has none of the classes of split {split!r} ({self.provenance})")
        others = [name for name in _BY_NUMBER if name in self.members and name != split]
        for other in others if split in _BY_NUMBER else []:
            listed = set(self._listed(other, packed))
            if shared := [packed.class_keys[i] for i in found if i in listed]:
                raise DataError(
                    f"{packed.source}: {', '.join(shared)}: in split {split!r} and also in split {other!r} "
                    f"({self.provenance}); a class may be in only one of {', '.join(_BY_NUMBER)}"
                )
        return np.array(found)

    def _listed(self, split: str, packed: Packed) -> list[int]:
        wanted = set(self.members[split])
        return [i for i, key in enumerate(packed.class_keys) if {key, key.split("/")[0]} & wanted]

    @property
    def names(self) -> list[str]:
        """Every split that can be asked for."""
        return [*(self.members or _BY_NUMBER), "all"]

    @property
    def complete(self) -> bool:
        """Whether there are classes to train, to validate and to test on."""
        return set(_BY_NUMBER) <= set(self.names)

    def unknown(self, packed: Packed) -> list[str]:
        """Return the entries that name no class of the data."""
        known = set(packed.class_keys) | {key.split("/")[0] for key in packed.class_keys}
        return sorted({entry for entries in self.members.values() for entry in entries} - known)
