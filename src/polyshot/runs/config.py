"""The settings of a training run; unless stated otherwise they are the paper's protocol.

Each setting is stated once, as a field of `TrainingConfig`. The flags of `polyshot train`, the keys of a TOML file,
their defaults, bounds and help all come from it. This module loads no torch, so that the command line stays quick.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from polyshot.errors import InputError
from polyshot.system.settings import Setting, field_settings, keyword_settings, read_settings

QUICK = 20  # `budget = "quick"` trains for this fraction of the paper's epochs: one part in 20
_MOST = 10**7  # more than any run needs; a damaged file may ask for more than any machine has

# Options of a method that may also be given like a setting.
OPTION_FLAGS = {
    "objective": "Training objective of a GP method that has several: ml or pl.",
    "kernel": "Kernel of a GP method.",
}


def _setting(help: str, default: Any = MISSING, **bounds: Any) -> Any:
    return field(default=default, metadata={"help": help, **bounds})


def _count(help: str, default: Any = None, at_least: int = 1) -> Any:
    return _setting(help, default, at_least=at_least, at_most=_MOST)


@dataclass(frozen=True)
class TrainingConfig:
    """What to train, on what, and for how long. None stands for the protocol's value, which `completed` fills in.

    The method's name and options are checked when a configuration is made, and nowhere else. `options` then holds
    every option of the method, in its own type.
    """

    method: str = _setting("Method to train; `polyshot methods` lists them.")
    scenario: str = _setting("Data to train on; `polyshot data list` lists the scenarios.")
    shots: int = _count("Support examples per class.", 5)
    ways: int = _count("Classes per episode.", 5, at_least=2)
    queries: int | None = _count("Queries per class. Default: 16, or as many as the smallest class has left.")
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "Options of the method."})
    backbone: str | None = _setting(
        "Network: conv4, identity, or the import path of any nn.Module, such as my_module:MyNet. "
        "Default: the method's own.",
        None,
    )
    epochs: int | None = _count(
        "Epochs. Default: 600 for 1-shot, 400 otherwise; for methods that train on batches, what the data set asks for."
    )
    budget: Literal["paper", "quick"] = _setting(
        f"paper, or quick: one {QUICK}th of the paper's epochs.", "paper"
    )  # fmt: skip
    episodes_per_epoch: int | None = _count(
        "Episodes per epoch. Default: 100; for methods that train on batches, one pass over the data."
    )
    meta_batch: int | None = _count("Episodes per optimiser step. Default: the method's own, 1 or 4.")
    learning_rate: float = _setting("Learning rate of Adam.", 1e-3, above=0)
    batch_size: int = _count("Examples per batch, for methods that train on batches.", 16)
    validate_every: int = _count("Epochs between validations.", 1)
    validation_episodes: int = _count("Episodes per validation.", 100)
    patience: int | None = _count("Stop after this many validations without a better one. Default: never.")
    keep_weights: bool = _setting("Keep the weights of every validation, in validated/EPOCH.safetensors.", False)
    rotations: bool = _setting("Make four training classes of each character by rotation.", False)
    settings: Literal["default", "paper"] = _setting(
        "paper: the method's options are those of the paper and its public code, unless given.", "default"
    )
    precision: Literal["float32", "bfloat16"] = _setting(
        "bfloat16: train the network in mixed precision, which is twice as fast where the processor supports it. "
        "The method's head, validation and evaluation stay in float32.",
        "float32",
    )
    seed: int = _setting("Seed of the weights and the episodes.", 0, at_least=0, at_most=2**63 - 1)

    def __post_init__(self) -> None:
        values = read_settings("", field_settings(type(self)), vars(self))
        if self.backbone is not None:
            from polyshot.methods.backbones import find_backbone

            find_backbone(self.backbone)
        known = keyword_settings(self.method_class)
        given = read_settings(self.method, known, self.options, from_text=True)
        own = {name: option.default for name, option in known.items()}
        if self.settings == "paper":
            # a subclass with a constructor of its own need not have all options of its base class
            own |= {name: value for name, value in self.method_class.paper_options.items() if name in known}
        values["options"] = own | given
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_mapping(
        cls, values: Mapping[str, Any], where: str = "the configuration", options: Mapping[str, Any] | None = None
    ) -> "TrainingConfig":
        """Make a configuration of names and values; `objective`, `kernel` and `options` add to the method's options."""
        known = field_settings(cls)
        rest = {name: value for name, value in values.items() if name not in OPTION_FLAGS}
        if unknown := sorted(set(rest) - set(known)):
            names = sorted([*known, *OPTION_FLAGS])
            raise InputError(f"{where}: unknown setting {', '.join(unknown)}; choose from {', '.join(names)}")
        required = [name for name, setting in known.items() if setting.default is MISSING]
        if lacking := [name for name in required if not rest.get(name)]:
            raise InputError(f"{where}: {' and '.join(lacking)} must be given")
        try:
            typed = read_settings("", known, rest)
            flags = {name: values[name] for name in OPTION_FLAGS if name in values}
            typed["options"] = {**typed.get("options", {}), **flags, **(options or {})}
            return cls(**typed)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    @property
    def method_class(self) -> Any:
        """The class of the method."""
        from polyshot.methods import METHODS

        return METHODS.find(self.method)

    @property
    def total_episodes(self) -> int:
        """Episodes (or batches) of the whole run, once completed."""
        return (self.epochs or 0) * (self.episodes_per_epoch or 0)

    def completed(self, smallest_class: int, classifier_epochs: int, n_batches: int) -> "TrainingConfig":
        """Replace every None by the protocol's value.

        smallest_class: examples of the smallest training class; the protocol wants 16 queries, but Omniglot's 20
        drawings per character leave 15 in 5-shot episodes. classifier_epochs and n_batches are for methods that train
        on batches: passes over the data, and batches per pass.
        """
        on_batches = self.method_class.trains_on == "batches"
        epochs = classifier_epochs if on_batches else 600 if self.shots == 1 else 400
        if self.budget == "quick":
            epochs = max(1, epochs // QUICK)
        return replace(
            self,
            queries=self.queries or max(1, min(16, smallest_class - self.shots)),
            epochs=self.epochs or epochs,
            episodes_per_epoch=self.episodes_per_epoch or (n_batches if on_batches else 100),
            meta_batch=self.meta_batch or self.method_class.meta_batch,
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def flag_settings() -> dict[str, Setting]:
    """Return every setting that is a flag of `polyshot train`."""
    options = {name: Setting(name, str, (), True, None, help) for name, help in OPTION_FLAGS.items()}
    return {**{name: s for name, s in field_settings(TrainingConfig).items() if s.type is not dict}, **options}


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file of training settings: the fields of TrainingConfig, `objective` and `kernel`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from error
