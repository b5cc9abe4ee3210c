"""Items to classify: texts, images or vectors, each with a name; and how they become vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyshot.encoders import Encoded, ImageEncoder, TextEncoder
from polyshot.errors import DataError, InputError

ItemKind: TypeAlias = Literal["text", "images", "vectors"]

_SHOWN = 20  # items that a message names
_SAMPLE = 1000  # items that stand for many
_ENCODERS: dict[str, Any] = {"text": TextEncoder, "images": ImageEncoder}


@dataclass(frozen=True)
class Items:
    """n items of one kind.

    Attributes
    ----------
    kind : "text", "images" or "vectors"
        What the items are.
    names : sequence of str
        What answers and messages call them.
    contents : sequence or array
        Strings; whatever `ImageEncoder` takes, such as paths; or numbers [n, d].

    Examples
    --------
    >>> from polyshot.app import Items
    >>> Items.of("text", ["my card is lost", "I forgot my password"]).names
    ['row 1', 'row 2']
    """

    kind: ItemKind
    names: Sequence[str]
    contents: Any

    def __post_init__(self) -> None:
        if len(self.names) != len(self.contents):
            raise InputError(f"{len(self.contents)} items and {len(self.names)} names; give one name per item")

    @classmethod
    def of(cls, kind: ItemKind, contents: Any, names: Sequence[str] | None = None) -> "Items":
        """Items from a list or an array; they are called "row 1", "row 2" and so on unless they have names."""
        contents = np.asarray(contents) if kind == "vectors" else list(contents)
        return cls(kind, list(names) if names is not None else [f"row {k + 1}" for k in range(len(contents))], contents)

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> "Items":
        """The items of those rows."""
        contents = self.contents[rows] if self.kind == "vectors" else [self.contents[row] for row in rows]
        return Items(self.kind, [self.names[row] for row in rows], contents)


def default_encoder(kind: ItemKind) -> str | None:
    """The name of the encoder that is used unless another is named; None for vectors, which need none."""
    return _ENCODERS[kind]().model if kind in _ENCODERS else None


def encoder_digest(kind: ItemKind, encoder: Any) -> str | None:
    """The identity of the encoder's weights; None for vectors and for functions."""
    return _ENCODERS[kind](encoder).encoder.digest if kind in _ENCODERS else None


def encode(items: Items, encoder: Any, *, progress: bool = False, cache: Any = "default") -> Encoded:
    """Vectors of the items, and the reason for each item that cannot be used; it raises for none of these.

    `cache` is that of TextEncoder and ImageEncoder.
    """
    if items.kind == "vectors":
        with np.errstate(over="ignore"):  # infinity is a reason
            vectors = np.asarray(items.contents, np.float32)
        bad = np.flatnonzero(~np.isfinite(vectors).all(-1)).tolist()
        return Encoded(vectors, dict.fromkeys(bad, "holds NaN, infinity or numbers that are too large"))
    encoded: Encoded = _ENCODERS[items.kind](encoder, progress=progress, cache=cache).encode(items.contents)
    if items.kind == "images":
        return encoded
    empty = [row for row, text in enumerate(items.contents) if not text.strip()]
    return Encoded(encoded.vectors, dict.fromkeys(empty, "empty text"))


def sample(items: Items) -> NDArray[np.int64]:
    """The rows of all items, or, of more than 1,000, those of a random sample, which is always the same."""
    return np.sort(np.random.default_rng(0).permutation(len(items))[:_SAMPLE])


def list_failures(items: Items, failures: Mapping[int, str]) -> str:
    """One line for each item that cannot be used, with the reason; of many, the first."""
    return list_reasons({items.names[row]: reason for row, reason in failures.items()})


def list_reasons(reasons: Mapping[str, str]) -> str:
    """The same for items by name."""
    lines = [f"  {name}: {reason}" for name, reason in list(reasons.items())[:_SHOWN]]
    return "\n".join(lines + ([f"  and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else []))


def unusable(items: Items, failures: Mapping[int, str], what: str) -> DataError:
    """The error that names all items that cannot be used."""
    return DataError(
        f"{len(failures)} of {len(items)} {what} cannot be used; repair or remove them, or add --skip-unreadable "
        f"(skip_unreadable=True in Python), which leaves them out:\n{list_failures(items, failures)}"
    )
