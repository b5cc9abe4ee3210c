"""A run folder: config.json, environment.json, log.jsonl, best.safetensors, last.safetensors."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyshot.errors import TrainingError
from polyshot.methods import FewShotMethod, build_method
from polyshot.methods.backbones import build_backbone
from polyshot.runs.config import TrainingConfig
from polyshot.system.checkpoint import load_checkpoint
from polyshot.system.files import write_atomically
from polyshot.task import Space

_PACKAGES = ("polyshot", "torch", "numpy", "numba", "polyagamma", "safetensors")


def package_versions() -> dict[str, str]:
    """What results may depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def start_run(out: Path, config: TrainingConfig, space: Space, threads: int) -> None:
    """Write what does not change during a run."""
    content = {**json.loads(config.as_json()), "space": {"shape": space.shape, "n_classes": space.n_classes}}
    write_atomically(out / "config.json", (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
    environment = {"packages": package_versions(), "threads": threads}
    write_atomically(out / "environment.json", (json.dumps(environment, indent=2) + "\n").encode())


def read_config(out: Path) -> tuple[TrainingConfig, Space]:
    """The configuration of a run folder, and what its method was built for."""
    path = out / "config.json"
    if not path.is_file():
        raise TrainingError(f"{out}: no run folder of polyshot (there is no config.json); `polyshot train` makes one")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        space = content.pop("space")
        return TrainingConfig.from_mapping(content, str(path)), Space(tuple(space["shape"]), space["n_classes"])
    except (ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path}: damaged, or of another version of polyshot: {error}") from error


def check_same_run(out: Path, config: TrainingConfig) -> None:
    """A folder that holds another run is not written into."""
    if out.exists() and not out.is_dir():
        raise TrainingError(f"{out}: is a file; name a folder for the run")
    # looked at once: another process of the team may be about to write config.json, which comes first
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")} if out.exists() else set()
    if "config.json" not in names:
        if names:
            raise TrainingError(f"{out}: holds other files and no run; name a new or empty folder")
        return
    before, now = (json.loads(c.as_json()) for c in (read_config(out)[0], config))
    if differ := [f"{k} {before[k]!r} -> {now[k]!r}" for k in now if before[k] != now[k]]:
        raise TrainingError(f"{out}: holds a run with another configuration ({'; '.join(differ)}); name another folder")


def first_weights(config: TrainingConfig, space: Space) -> FewShotMethod:
    """The untrained method; its weights are a function of the seed, and the global generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = None if config.backbone is None else build_backbone(config.backbone, space)
        return build_method(config.method, space, backbone, config.options)


def load_weights(method: FewShotMethod, tensors: dict[str, Tensor]) -> None:
    """Copy saved weights in; weights of another method or backbone are a TrainingError."""
    saved = {name.removeprefix("method."): t for name, t in tensors.items() if name.startswith("method.")}
    own = method.state_dict()
    wrong = [
        n for n in sorted(own.keys() | saved.keys()) if n not in own or n not in saved or own[n].shape != saved[n].shape
    ]
    if wrong:
        raise TrainingError(
            f"the checkpoint is of another method or backbone; these do not fit: {', '.join(wrong[:5])}"
        )
    method.load_state_dict(saved)


def epoch_lines(history: Sequence[Mapping[str, Any]]) -> bytes:
    """The log: one JSON object an epoch and line."""
    return "".join(json.dumps(entry) + "\n" for entry in history).encode()


def read_history(out: Path) -> list[dict[str, Any]]:
    """The log of a run folder, an entry an epoch; empty where there is none yet."""
    path = out / "log.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    except ValueError as error:
        raise TrainingError(f"{path}: damaged ({error}); --unfinished evaluates without it") from error


def all_episodes(config: TrainingConfig) -> int:
    """Episodes of a whole run."""
    return (config.epochs or 0) * (config.episodes_per_epoch or 0)


def validation_accuracies(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """Every validation accuracy so far."""
    return [entry["validation_accuracy"] for entry in history if "validation_accuracy" in entry]


def has_ended(history: Sequence[Mapping[str, Any]], config: TrainingConfig) -> bool:
    """Whether the budget is used up, or patience is."""
    done = history[-1]["episodes"] if history else 0
    checked = validation_accuracies(history)
    waited = len(checked) - 1 - checked.index(max(checked)) if checked else 0
    return done >= all_episodes(config) or (config.patience is not None and waited >= config.patience)


def load_method(out: Path) -> tuple[FewShotMethod, TrainingConfig, dict[str, Any]]:
    """The trained method of a run folder, its configuration, and the log entry of its best weights."""
    config, space = read_config(out)
    if not (out / "best.safetensors").exists():
        raise TrainingError(f"{out}: the run has no validated weights yet; let `polyshot train` go on with it")
    method = first_weights(config, space)
    tensors, entry = load_checkpoint(out / "best.safetensors")
    load_weights(method, tensors)
    return method.eval(), config, entry
