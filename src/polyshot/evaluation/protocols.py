"""The paper's protocols: which episodes of a run's test classes it is judged on. Defaults are those of DESIGN.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from polyshot.data import CORRUPTIONS, ClassSet, EpisodeSampler, corrupt
from polyshot.errors import DataError, InputError
from polyshot.runs.config import TrainingConfig

PROTOCOLS = ("accuracy", "calibration", "corruption", "out-of-episode")
TEMPERATURE = "temperature"  # not a protocol to report: validation episodes that a temperature is fitted on
_CHUNK = 100  # episodes that are computed, and kept, together


class _Default(NamedTuple):
    number: int  # goes into the seed
    batches: int
    episodes: int
    shots: int | None  # None: the run's own


_DEFAULTS = {
    "accuracy": _Default(0, 5, 600, None),
    "corruption": _Default(1, 1, 1000, 5),
    "out-of-episode": _Default(2, 1, 1000, 5),
    TEMPERATURE: _Default(3, 1, 200, None),
}


@dataclass(frozen=True)
class Changes:
    """What is to be other than the protocol; None is the protocol's, for ways and accuracy's shots the run's own."""

    episodes: int | None = None
    batches: int | None = None
    shots: int | None = None
    ways: int | None = None
    queries: int = 15
    seed: int = 0
    corruptions: Sequence[str] = tuple(CORRUPTIONS)
    severity: int = 5


class Chunk(NamedTuple):
    """Episodes first..last-1 of a batch."""

    batch: int
    first: int
    last: int


@dataclass(frozen=True)
class Settings:
    """One protocol, in full; `episodes` are those of a batch, `queries` those of a class.

    The episodes follow from these and the class set alone, so that every run sees the same ones.
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

    def __post_init__(self) -> None:
        if self.batches < 1 or self.episodes < 1:
            raise InputError(f"batches and episodes are at least 1; got {self.batches} and {self.episodes}")
        if self.corruption is not None:  # with no image, only the name and the severity are checked
            corrupt(torch.empty((0, 1, 1, 1), dtype=torch.uint8), self.corruption, self.severity or 0, 0)

    @property
    def name(self) -> str:
        """Of its result file, without the ending."""
        return self.protocol if self.corruption is None else f"{self.protocol}-{self.corruption}-{self.severity}"

    def sampler_arguments(self, batch: int) -> dict[str, Any]:
        """Arguments of EpisodeSampler for a batch; all corruptions have the same episodes."""
        seeds = np.random.SeedSequence((self.seed, _DEFAULTS[self.protocol].number, batch))
        return {
            "n_way": self.ways,
            "n_shot": self.shots,
            "n_query": self.queries,
            "seed": int(seeds.generate_state(1)[0]),
            "n_extra_way": self.ways if self.protocol == "out-of-episode" else 0,
        }

    def samplers(self, class_set: ClassSet) -> list[EpisodeSampler]:
        """One a batch; a class set that is too small is a DataError."""
        n_classes = len(class_set.class_names)
        if self.protocol == "out-of-episode" and n_classes < 2 * self.ways:
            raise DataError(
                f"{class_set.name}: has {n_classes} classes, and out-of-episode needs 2 x {self.ways} ways = "
                f"{2 * self.ways}; ask for at most {n_classes // 2} ways, or add classes"
            )
        return [EpisodeSampler(class_set, **self.sampler_arguments(batch)) for batch in range(self.batches)]

    def corruption_arguments(self) -> dict[str, Any] | None:
        """Arguments of ClassSet.corrupted, where images are corrupted."""
        if self.corruption is None:
            return None
        return {"corruption": self.corruption, "severity": self.severity, "seed": self.seed}

    def chunks(self) -> list[Chunk]:
        """All episodes in their order, a batch's in pieces of at most 100."""
        return [
            Chunk(batch, first, min(first + _CHUNK, self.episodes))
            for batch in range(self.batches)
            for first in range(0, self.episodes, _CHUNK)
        ]


def plan(protocol: str, config: TrainingConfig, changes: Changes) -> list[Settings]:
    """The settings of a protocol for a run: one, or one a corruption. Accuracy and calibration are one pass."""
    name = "accuracy" if protocol == "calibration" else protocol
    if name not in _DEFAULTS:
        raise InputError(f"no protocol {protocol!r}; there is {', '.join(PROTOCOLS)} and all")
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
    if name != "corruption":
        return [Settings(**settings)]
    return [Settings(**settings, corruption=c, severity=changes.severity) for c in changes.corruptions]


def temperature_settings(settings: Settings) -> Settings:
    """The validation episodes that fit a temperature for these: of the same shape."""
    default = _DEFAULTS[TEMPERATURE]
    shape = (settings.ways, settings.shots, settings.queries, settings.seed)
    return Settings(TEMPERATURE, default.batches, default.episodes, *shape)


def check_images(class_set: ClassSet) -> None:
    """Corruptions are of images."""
    if class_set.x.ndim != 4:
        raise InputError(
            f"{class_set.name}: holds embeddings, and only images can be corrupted; leave the protocol corruption out, "
            "or corrupt the images before they are embedded"
        )
