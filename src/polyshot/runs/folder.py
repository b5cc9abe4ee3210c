"""The run folder: the one place that reads and writes it.

| file | content | protected by |
|---|---|---|
| `config.json` | the complete configuration, and the shape of the examples | its checksum |
| `environment.json` | versions of the packages, number of threads | its checksum |
| `log.jsonl` | one line per epoch | a checksum per line, which covers all lines before it |
| `best.safetensors` | the weights with the best validation accuracy | its checksum, and that of `config.json` |
| `last.safetensors` | the whole state, to resume from, with the log | its checksum, and that of `config.json` |
| `validated/EPOCH.safetensors` | the weights of every validation, with `keep_weights` | as `best.safetensors` |
| `familiar.safetensors` | what examples look like to the best weights | its checksum, and that of the weights |

`config.json` is written last, so a folder that has one also has a `last.safetensors`. The first edition of polyshot
wrote no checksums into JSON files and did not tie checkpoints to the configuration; its folders can still be read.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyshot.data import Scenario
from polyshot.errors import DataError, InputError, TrainingError
from polyshot.methods import FewShotMethod
from polyshot.methods.backbones import build_backbone
from polyshot.runs.config import TrainingConfig
from polyshot.runs.familiarity import Familiarity
from polyshot.runs.history import check_entry, format_log, has_ended, parse_log, validation_accuracies
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.system.files import write_atomically
from polyshot.system.lock import only_writer
from polyshot.system.sealed import REMEDY, digest, read_sealed, write_sealed
from polyshot.system.versions import package_versions
from polyshot.task import Space

_CONFIG, _ENVIRONMENT, _LOG, _BEST, _LAST, _FAMILIAR, _KEPT = (
    "config.json", "environment.json", "log.jsonl", "best.safetensors", "last.safetensors", "familiar.safetensors",
    "validated",
)  # fmt: skip
_FROM_SCRATCH = "restore it from a copy, or delete the folder and train from scratch"
_MOST_NUMBERS, _MOST_CLASSES = 2**24, 10**7  # of one example, of a method


class Checkpoint(NamedTuple):
    """Tensors by name, and what is recorded about them."""

    tensors: dict[str, Tensor]
    record: dict[str, Any]


class RunFolder:
    """A run folder; every property and method checks what it reads.

    Parameters
    ----------
    path : Path or str
        The folder. It need not exist yet.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @cached_property
    def config(self) -> TrainingConfig:
        """The complete configuration."""
        values = {name: value for name, value in self._content.items() if name != "space"}
        try:
            return TrainingConfig.from_mapping(values, str(self.path / _CONFIG))
        except InputError as error:
            raise TrainingError(f"{error} (the file is damaged, or of another version of polyshot)") from error

    @cached_property
    def space(self) -> Space:
        """What the method was built for."""
        space = self._content.get("space")
        shape, n_classes = (space.get("shape"), space.get("n_classes")) if isinstance(space, dict) else (None, None)
        if (
            not isinstance(shape, list)
            or len(shape) not in (1, 3)
            or not all(type(n) is int and n > 0 for n in shape)
            or math.prod(shape) > _MOST_NUMBERS
            or type(n_classes) is not int
            or not 0 < n_classes <= _MOST_CLASSES
        ):
            raise TrainingError(
                f"{self.path / _CONFIG}: damaged: space must have a shape [d] or [channels, height, width] and "
                f"n_classes, not {str(space)[:100]}"
            )
        return Space(tuple(shape), n_classes)

    @property
    def environment(self) -> dict[str, Any]:
        """Versions of the packages, and the number of threads."""
        return self._read(_ENVIRONMENT)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The log, one entry per epoch; empty if there is none yet."""
        path, unchecked = self.path / _LOG, self._is_first_edition
        try:
            return parse_log(path.read_bytes() if path.exists() else b"", unchecked=unchecked)
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"{path}: damaged ({error}); `polyshot train --out {self.path}` restores it, and --unfinished "
                "evaluates without it"
            ) from error

    @property
    def finished(self) -> bool:
        """Whether the log says that training has ended."""
        return has_ended(self.history, self.config)

    def best(self) -> Checkpoint:
        """The weights with the best validation accuracy, and the log entry of their epoch."""
        if not (self.path / _BEST).exists():
            raise TrainingError(
                f"{self.path}: has no {_BEST}: no epoch was validated yet, or the file was deleted. "
                f"`polyshot train --out {self.path}` resumes an unfinished run. Otherwise {_FROM_SCRATCH}"
            )
        return self._checkpoint(_BEST)

    def last(self) -> Checkpoint:
        """The whole state, to resume from."""
        if not self.has_state:
            raise TrainingError(f"{self.path}: {_LAST} is missing, so the run cannot be resumed; {_FROM_SCRATCH}")
        return self._checkpoint(_LAST)

    @property
    def has_state(self) -> bool:
        """Whether there is a state to resume from."""
        return (self.path / _LAST).exists()

    @property
    def weights_digest(self) -> str:
        """The SHA-256 of the file with the best weights."""
        with (self.path / _BEST).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def load_method(self) -> tuple[FewShotMethod, dict[str, Any]]:
        """Return the trained method and the log entry of its best weights."""
        method = self.new_method()
        tensors, entry = self.best()
        self.load_weights(method, tensors)
        return method.eval(), entry

    def new_method(self) -> FewShotMethod:
        """Return the method with its first weights."""
        try:
            return first_weights(self.config, self.space)
        except (InputError, RuntimeError, MemoryError, TypeError, OverflowError) as error:
            raise TrainingError(f"{self.path / _CONFIG}: no method can be built from it: {error}") from error

    def load_weights(self, method: FewShotMethod, tensors: Mapping[str, Tensor]) -> None:
        """Copy the weights of a checkpoint into the method."""
        saved = {name.removeprefix("method."): t for name, t in tensors.items() if name.startswith("method.")}
        own = method.state_dict()
        names = sorted(own.keys() | saved.keys())
        if wrong := [n for n in names if n not in own or n not in saved or own[n].shape != saved[n].shape]:
            raise TrainingError(
                f"{self.path}: the checkpoint is of another method or backbone; these do not fit: "
                f"{', '.join(wrong[:5])}"
            )
        method.load_state_dict(saved)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other processes from training in this folder, and tidy up after killed ones."""
        if self.path.exists() and not self.path.is_dir():
            raise TrainingError(f"{self.path}: is a file; name a folder for the run")
        names = (_CONFIG, _ENVIRONMENT, _LOG, _BEST, _LAST, _FAMILIAR)
        with only_writer(self.path / ".lock", *(self.path / name for name in names)):
            yield

    def holds(self, config: TrainingConfig) -> bool:
        """Return whether this run is in the folder; raise TrainingError if anything else is."""
        names = {path.name for path in self.path.iterdir() if path.name[0] != "."} if self.path.exists() else set()
        if _CONFIG not in names:
            if names & {_BEST, _LOG}:
                raise TrainingError(f"{self.path}: {_CONFIG} of this run is missing; {_FROM_SCRATCH}")
            if names - {_ENVIRONMENT, _LAST}:
                raise TrainingError(f"{self.path}: holds other files and no run; name a new or empty folder")
            return False
        before, now = self.config.as_dict(), config.as_dict()
        if differ := [f"{k} {before[k]!r} -> {now[k]!r}" for k in now if before[k] != now[k]]:
            raise TrainingError(
                f"{self.path}: holds a run with another configuration ({'; '.join(differ)}); name another folder"
            )
        if _ENVIRONMENT in names:
            self._read(_ENVIRONMENT)
        # the first edition saved no state before the first epoch
        return not (self._is_first_edition and not names & {_LAST, _BEST, _LOG})

    def create(self, config: TrainingConfig, space: Space, threads: int, state: Checkpoint) -> None:
        """Write a new run; `state` is where it starts."""
        content = {**config.as_dict(), "space": {"shape": list(space.shape), "n_classes": space.n_classes}}
        self.__dict__ = {"path": self.path}  # nothing that was read before holds any more
        save_checkpoint(self.path / _LAST, state.tensors, {**state.record, "run": digest(content)})
        write_sealed(self.path / _ENVIRONMENT, {"packages": package_versions(), "threads": threads})
        write_sealed(self.path / _CONFIG, content)

    def resume(self) -> Checkpoint:
        """Return the state to resume from, after checking that the best weights so far are there too."""
        state = self.last()
        if validation_accuracies(state.record.get("history", [])):
            self.best()
        return state

    def save_best(self, tensors: Mapping[str, Tensor], entry: Mapping[str, Any]) -> None:
        """Write the best weights so far, and the log entry of their epoch."""
        save_checkpoint(self.path / _BEST, tensors, {**entry, "run": self._digest})

    def keep(self, tensors: Mapping[str, Tensor], entry: Mapping[str, Any]) -> None:
        """Write the weights of a validation beside those of the others."""
        file = self.path / _KEPT / f"{entry['epoch']:06}.safetensors"
        save_checkpoint(file, tensors, {**entry, "run": self._digest})

    def kept(self) -> Iterator[Checkpoint]:
        """The weights of every validation in their order, each with its entry of the log."""
        for file in sorted((self.path / _KEPT).glob("*.safetensors")):
            yield self._checkpoint(f"{_KEPT}/{file.name}")

    def save_last(self, state: Checkpoint) -> None:
        """Write the whole state."""
        save_checkpoint(self.path / _LAST, state.tensors, {**state.record, "run": self._digest})

    def remember(self, scenario: Scenario, device: torch.device) -> None:
        """Keep how examples look to the best weights, so that a prediction can tell strange ones."""
        method, _ = self.load_method()
        if (found := Familiarity.of(method.to(device), scenario, device)) is not None:
            tensors = {"trained": found.trained.half(), "usual": found.usual}
            save_checkpoint(self.path / _FAMILIAR, tensors, {"weights": self.weights_digest})

    def familiar(self) -> Familiarity | None:
        """How examples look to the best weights; None if the run has not ended, or its method cannot tell."""
        if not (self.path / _FAMILIAR).is_file():
            return None
        tensors, record = load_checkpoint(self.path / _FAMILIAR)
        if record.get("weights") != self.weights_digest:
            return None  # training went on since
        return Familiarity(tensors["trained"].float(), tensors["usual"])

    def write_history(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Write the log."""
        write_atomically(self.path / _LOG, format_log(history))

    @cached_property
    def _content(self) -> dict[str, Any]:
        if not (self.path / _CONFIG).is_file():
            raise TrainingError(
                f"{self.path}: not a run folder of polyshot (there is no {_CONFIG}); `polyshot train` makes one"
            )
        return self._read(_CONFIG)

    @cached_property
    def _is_first_edition(self) -> bool:
        """Whether there are no checksums."""
        return not (self.path / _CONFIG).is_file() or not read_sealed(self.path / _CONFIG)[1]

    @cached_property
    def _digest(self) -> str:
        """What ties checkpoints to this configuration."""
        return digest(self._content)

    def _read(self, name: str) -> dict[str, Any]:
        content, sealed = read_sealed(self.path / name)
        if name != _CONFIG and not sealed and not self._is_first_edition:
            raise DataError(f"{self.path / name}: damaged, it has lost its checksum; {REMEDY}")
        return content

    def _checkpoint(self, name: str) -> Checkpoint:
        tensors, record = load_checkpoint(self.path / name)
        run = record.pop("run", None)
        if run != self._digest and not (run is None and self._is_first_edition):
            raise TrainingError(
                f"{self.path / name}: belongs to a run with another configuration than this folder's {_CONFIG}; "
                f"{_FROM_SCRATCH}"
            )
        try:
            for entry in record.get("history", []) if name == _LAST else [record]:
                check_entry(entry)
        except (TypeError, ValueError, AttributeError) as error:
            raise TrainingError(f"{self.path / name}: not the record of a run ({error}); {_FROM_SCRATCH}") from error
        return Checkpoint(tensors, record)


def first_weights(config: TrainingConfig, space: Space) -> FewShotMethod:
    """Return the untrained method; its weights depend on the seed alone, and the global generator is left as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = None if config.backbone is None else build_backbone(config.backbone, space)
        method: FewShotMethod = config.method_class(space, backbone, **config.options)
        return method
