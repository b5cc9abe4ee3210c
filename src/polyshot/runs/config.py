"""The configuration of a training run: the paper's protocol unless said otherwise, whole, and as JSON or TOML."""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from polyshot.data.dataset import ClassSet
from polyshot.errors import InputError
from polyshot.methods import METHODS
from polyshot.methods.backbones import find_backbone
from polyshot.system.settings import keyword_settings, read_settings
from polyshot.task import Space

BUDGETS = ("paper", "quick")
QUICK = 20  # --budget quick is one part in so many of the paper's epochs
_WORDS = {str: "a name", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


@dataclass(frozen=True)
class TrainingConfig:
    """What is learned from what, and for how long; None stands for the protocol's value until `completed`.

    shots, ways, queries: of a training or validation episode. epochs: 600 for 1-shot and 400 for more, or passes over
    the data for methods that train on batches. episodes_per_epoch: episodes (or batches). meta_batch: episodes a step.
    patience: stop after so many validations without a better one (the paper always runs to the end).
    """

    method: str
    scenario: str
    shots: int = 5
    ways: int = 5
    queries: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    backbone: str | None = None
    epochs: int | None = None
    budget: str = "paper"
    episodes_per_epoch: int | None = None
    meta_batch: int | None = None
    learning_rate: float = 1e-3
    batch_size: int = 16
    validate_every: int = 1
    validation_episodes: int = 100
    patience: int | None = None
    rotations: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        METHODS.find(self.method)
        if self.backbone is not None:
            find_backbone(self.backbone)
        if self.budget not in BUDGETS:
            raise InputError(f"the budget is {' or '.join(BUDGETS)}, not {self.budget!r}")
        read_settings(self.method, keyword_settings(METHODS[self.method]), self.options, from_text=True)
        for name in ("shots", "queries", "epochs", "episodes_per_epoch", "meta_batch", "batch_size", "validate_every",
                     "validation_episodes", "patience"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is at least 1, not {value!r}")
        if self.ways < 2 or self.seed < 0:
            raise InputError(f"ways is at least 2 and the seed at least 0; got {self.ways!r} and {self.seed!r}")
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"the learning rate is a positive number, not {self.learning_rate!r}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = "the configuration") -> "TrainingConfig":
        """A configuration from names and values, `objective` and `kernel` being options of the method."""
        known = get_type_hints(cls)
        if unknown := sorted(set(values) - set(known) - {"objective", "kernel"}):
            raise InputError(f"{where}: unknown {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        if lacking := [name for name in ("method", "scenario") if not values.get(name)]:
            raise InputError(f"{where}: {' and '.join(lacking)} must be given")
        options = {name: values[name] for name in ("objective", "kernel") if name in values}
        rest = {name: _typed(f"{where}: {name}", known[name], value) for name, value in values.items() if name in known}
        return cls(**{**rest, "options": {**rest.get("options", {}), **options}})

    def completed(self, train: ClassSet, shape: tuple[int, ...], n_batches: int) -> "TrainingConfig":
        """Every None replaced by the protocol's value for these training classes."""
        method = METHODS[self.method]
        on_batches = method.trains_on == "batches"
        kind = Space(shape, len(train.class_names)).kind
        epochs = 600 if self.shots == 1 else 400
        if on_batches:
            epochs = {"characters": 5, "natural": 200 if train.name.startswith("cub") else 400, "embeddings": 5}[kind]
        if self.budget == "quick":
            epochs = max(1, epochs // QUICK)
        # Omniglot has 20 drawings a character: 15 queries are left where the protocol wants 16.
        queries = max(1, min(16, int(train.class_sizes.min()) - self.shots))
        defaults = {name: option.default for name, option in keyword_settings(method).items()}
        given = read_settings(self.method, keyword_settings(method), self.options, from_text=True)
        return replace(
            self,
            options={**defaults, **given},
            queries=self.queries or queries,
            epochs=self.epochs or epochs,
            episodes_per_epoch=self.episodes_per_epoch or (n_batches if on_batches else 100),
            meta_batch=self.meta_batch or method.meta_batch,
        )

    def as_json(self) -> str:
        """For the run folder."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"


def _typed(name: str, hint: Any, value: Any) -> Any:
    """The value, if it is of the type that a field of TrainingConfig has."""
    kinds = [get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,))]
    if float in kinds and type(value) is int:
        return float(value)
    if type(value) not in kinds:
        raise InputError(f"{name} must be {_WORDS[kinds[0]]}, not {value!r}")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """The values in a TOML file: the keys of TrainingConfig, and `objective` and `kernel`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from error
    if not isinstance(content.get("options", {}), dict):
        raise InputError(f"{path}: options must be a table, [options], not {content['options']!r}")
    return content
