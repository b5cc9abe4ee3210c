"""Checkpoints: tensors and a JSON record in one safetensors file, written whole or not at all; nothing is unpickled."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from polyshot.errors import DataError

_FORMAT = "polyshot-checkpoint-1"


def write_atomically(path: Path, content: bytes) -> None:
    """The whole content under that name, or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Write the tensors with a JSON record about them."""
    whole = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    metadata = {"format": _FORMAT, "record": json.dumps(record), "sha256": _digest(whole)}
    write_atomically(path, save(whole, metadata))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and their record; a file that is not one of ours, or not whole, is a DataError."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: not a safetensors file, or cut short ({error}); delete it to start over") from error
    if metadata.get("format") != _FORMAT:
        raise DataError(f"{path}: a safetensors file, but no checkpoint of this version of polyshot ({_FORMAT})")
    if metadata.get("sha256") != _digest(tensors):
        raise DataError(f"{path}: damaged, its tensors do not match their checksum; delete it to start over")
    return tensors, json.loads(metadata["record"])


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
