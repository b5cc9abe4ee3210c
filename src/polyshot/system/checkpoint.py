"""Checkpoints: tensors and a JSON record in one safetensors file with a checksum; nothing is ever unpickled."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, contiguous_format

from polyshot.errors import DataError
from polyshot.system.files import write_atomically

_FORMAT = "polyshot-checkpoint-1"
_REMEDY = "restore it from a copy, or delete it and create it again"


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any], kind: str = _FORMAT) -> None:
    """Write the tensors with a JSON record about them."""
    # copies, because safetensors refuses tensors that share memory, such as tied weights
    whole = {name: t.detach().cpu().clone(memory_format=contiguous_format) for name, t in tensors.items()}
    text = json.dumps(record)
    write_atomically(path, save(whole, {"format": kind, "record": text, "sha256": _digest(whole, text)}))


def load_checkpoint(path: Path, kind: str = _FORMAT) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and their record; raise DataError for a damaged file or one of another kind."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable safetensors file, or cut short ({error}); {_REMEDY}") from error
    if metadata.get("format") != kind:
        raise DataError(f"{path}: a safetensors file, but not one that polyshot wrote as {kind}")
    record = metadata.get("record", "")
    if metadata.get("sha256") != _digest(tensors, record):
        raise DataError(f"{path}: damaged, its content does not match its checksum; {_REMEDY}")
    try:
        content = json.loads(record)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{path}: its record is not a JSON object; {_REMEDY}")
    return tensors, content


def _digest(tensors: Mapping[str, Tensor], record: str) -> str:
    digest = hashlib.sha256(record.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
