"""Checkpoints: tensors and a JSON record in one safetensors file with a checksum; nothing is ever unpickled."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, contiguous_format

from polyshot.errors import DataError
from polyshot.system.files import write_atomically
from polyshot.system.sealed import REMEDY

_FORMAT = "polyshot-checkpoint-1"


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any], kind: str = _FORMAT) -> None:
    """Write the tensors with a JSON record about them."""
    # copies, because safetensors refuses tensors that share memory, such as tied weights
    whole = {name: t.detach().cpu().clone(memory_format=contiguous_format) for name, t in tensors.items()}
    text = json.dumps(record)
    write_atomically(path, save(whole, {"format": kind, "record": text, "sha256": _digest(whole, text)}))


def load_checkpoint(path: Path, *kinds: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and their record; raise DataError for a damaged file or one of other kinds."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        content = path.read_bytes()  # safetensors opens no file whose name is not UTF-8
        tensors = load(content)
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__") or {}
    except (SafetensorError, OSError, ValueError, LookupError) as error:
        raise DataError(f"{path}: not a readable safetensors file, or cut short ({error}); {REMEDY}") from error
    kinds = kinds or (_FORMAT,)
    if metadata.get("format") not in kinds:
        raise DataError(f"{path}: a safetensors file, but not one that polyshot wrote as {kinds[0]}")
    record = metadata.get("record", "")
    if metadata.get("sha256") != _digest(tensors, record):
        raise DataError(f"{path}: damaged, its content does not match its checksum; {REMEDY}")
    try:
        fields = json.loads(record)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise DataError(f"{path}: its record is not a JSON object; {REMEDY}")
    return tensors, fields


def _digest(tensors: Mapping[str, Tensor], record: str) -> str:
    digest = hashlib.sha256(record.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
