"""The paper's protocols: which episodes of a run's test classes it is evaluated on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from polyshot.data import CORRUPTIONS, ClassSet, EpisodeSampler, corrupt
from polyshot.errors import DataError, InputError
from polyshot.runs.config import TrainingConfig

PROTOCOLS = ("accuracy", "calibration", "corruption", "out-of-episode")  # for users
_SAME_EPISODES = {"calibration": "accuracy"}  # one pass and one result for both
_TEMPERATURE = "temperature"  # validation episodes on which a temperature is fitted; never reported
_CHUNK = 100  # episodes that are computed, and kept, together


class _Default(NamedTuple):
    number: int  # goes into the seed
    batches: int
    episodes: int
    shots: int | None  # None: those the run was trained with
    corrupted: bool = False
    with_outside: bool = False  # queries of unknown classes, as many classes as ways


_DEFAULTS = {
    "accuracy": _Default(0, 5, 600, None),
    "corruption": _Default(1, 1, 1000, 5, corrupted=True),
    "out-of-episode": _Default(2, 1, 1000, 5, with_outside=True),
    _TEMPERATURE: _Default(3, 1, 200, None),
}


@dataclass(frozen=True)
class Changes:
    """What differs from the protocol; None keeps the protocol's value.

    Attributes
    ----------
    episodes : int, optional
        Episodes per batch.
    batches : int, optional
    shots, ways : int, optional
        By default the run's own; corruption and out-of-episode use 5 shots.
    queries : int
        Queries per class.
    seed : int
        Seed of the episodes.
    corruptions : sequence of str
    severity : int
        1 to 5.
    crops : bool
        Corrupt the crop that the network sees, as the paper's public code does, and not the whole image.
    """

    episodes: int | None = None
    batches: int | None = None
    shots: int | None = None
    ways: int | None = None
    queries: int = 15
    seed: int = 0
    corruptions: Sequence[str] = tuple(CORRUPTIONS)
    severity: int = 5
    crops: bool = False


class Chunk(NamedTuple):
    """Episodes first..last-1 of a batch."""

    batch: int
    first: int
    last: int


@dataclass(frozen=True)
class ProtocolSettings:
    """One protocol in full. The episodes depend on these settings and the class set only: every run sees the same ones.

    Attributes
    ----------
    protocol : str
        "accuracy" (which includes calibration), "corruption" or "out-of-episode".
    batches : int
    episodes : int
        Episodes per batch.
    ways, shots : int
    queries : int
        Queries per class.
    seed : int
    corruption : str, optional
    severity : int, optional
    crops : bool
        Whether the crop that the network sees was corrupted, and not the whole image.
    """

    protocol: str
    batches: int
    episodes: int
    ways: int
    shots: int
    queries: int
    seed: int
    corruption: str | None = None
    severity: int | None = None
    crops: bool = False

    @property
    def name(self) -> str:
        """Name of the result file, without its ending."""
        if self.corruption is None:
            return self.protocol
        return f"{self.protocol}-{self.corruption}-{self.severity}" + ("-crops" if self.crops else "")

    @property
    def condition(self) -> str:
        """What was done to the images, for people."""
        if self.corruption is None:
            return "no corruption"
        crops = " at the network's size" if self.crops else ""
        return f"{self.corruption.replace('_', ' ')}{crops}, severity {self.severity}"

    @property
    def n_episodes(self) -> int:
        """Episodes of all batches."""
        return self.batches * self.episodes

    def sampler_arguments(self, batch: int) -> dict[str, Any]:
        """Arguments of EpisodeSampler for a batch; all corruptions have the same episodes."""
        default = _DEFAULTS[self.protocol]
        seeds = np.random.SeedSequence((self.seed, default.number, batch))
        return {
            "n_way": self.ways,
            "n_shot": self.shots,
            "n_query": self.queries,
            "seed": int(seeds.generate_state(1)[0]),
            "n_extra_way": self.ways if default.with_outside else 0,
        }

    def samplers(self, class_set: ClassSet) -> list[EpisodeSampler]:
        """One sampler per batch; a class set that is too small is a DataError."""
        n_classes = len(class_set.class_names)
        if _DEFAULTS[self.protocol].with_outside and n_classes < 2 * self.ways:
            raise DataError(
                f"{class_set.name}: has {n_classes} classes, but {self.protocol} needs 2 x {self.ways} ways = "
                f"{2 * self.ways}; use at most {n_classes // 2} ways, or add classes"
            )
        return [EpisodeSampler(class_set, **self.sampler_arguments(batch)) for batch in range(self.batches)]

    def corruption_arguments(self) -> dict[str, Any] | None:
        """Arguments of ClassSet.corrupted; None if images stay as they are."""
        if self.corruption is None:
            return None
        return {"corruption": self.corruption, "severity": self.severity, "seed": self.seed, "crops": self.crops}

    def chunks(self) -> list[Chunk]:
        """All episodes in order, each batch in pieces of at most 100."""
        return [
            Chunk(batch, first, min(first + _CHUNK, self.episodes))
            for batch in range(self.batches)
            for first in range(0, self.episodes, _CHUNK)
        ]


def plan(protocol: str, config: TrainingConfig, changes: Changes) -> list[ProtocolSettings]:
    """The settings of a protocol for a run: one, or one per corruption."""
    if protocol not in PROTOCOLS:
        raise InputError(f"unknown protocol {protocol!r}; choose from {', '.join(PROTOCOLS)}, all")
    name = _SAME_EPISODES.get(protocol, protocol)
    default = _DEFAULTS[name]
    settings: dict[str, Any] = {
        "protocol": name,
        "batches": changes.batches or default.batches,
        "episodes": changes.episodes or default.episodes,
        "ways": changes.ways or config.ways,
        "shots": changes.shots or default.shots or config.shots,
        "queries": changes.queries,
        "seed": changes.seed,
    }
    if min(settings["batches"], settings["episodes"]) < 1:
        raise InputError(f"batches and episodes must be at least 1; got {changes.batches} and {changes.episodes}")
    if not default.corrupted:
        return [ProtocolSettings(**settings)]
    for corruption in changes.corruptions:  # checks name and severity; there is no image to corrupt
        corrupt(torch.empty((0, 1, 1, 1), dtype=torch.uint8), corruption, changes.severity, 0)
    settings |= {"severity": changes.severity, "crops": changes.crops}
    return [ProtocolSettings(**settings, corruption=c) for c in changes.corruptions]


def temperature_settings(settings: ProtocolSettings) -> ProtocolSettings:
    """The validation episodes on which a temperature is fitted, of the same shape as `settings`."""
    default = _DEFAULTS[_TEMPERATURE]
    shape = (settings.ways, settings.shots, settings.queries, settings.seed)
    return ProtocolSettings(_TEMPERATURE, default.batches, default.episodes, *shape)


def check_images(class_set: ClassSet) -> None:
    """Refuse to corrupt what is not an image."""
    if class_set.x.ndim != 4:
        raise InputError(
            f"{class_set.name}: contains embeddings, and only images can be corrupted; leave out the protocol "
            "corruption, or corrupt the images before they are embedded"
        )
