"""What two folders must have in common to be the same, to the bit: all but clocks and what follows from them."""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

_DIFFER = {"seconds", "processor_seconds", "training_seconds", "sha256", "check", "model", "weights"}


def content(folder: Path) -> dict[str, Any]:
    """Every file of a folder, hidden ones too, by its name."""
    return {str(file.relative_to(folder)): _read(file) for file in sorted(folder.rglob("*")) if file.is_file()}


def _read(file: Path) -> Any:
    if file.suffix in (".safetensors", ".polyshot"):  # the order of their metadata is not fixed
        with safe_open(file, framework="np") as tensors:
            record = json.loads((tensors.metadata() or {})["record"])
            return {name: tensors.get_tensor(name).tobytes() for name in tensors.keys()}, _timeless(record)  # noqa: SIM118
    if file.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in file.read_text().splitlines()]
    return _timeless(json.loads(file.read_text())) if file.suffix == ".json" else file.read_bytes()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(part) for key, part in value.items() if key not in _DIFFER}
    return [_timeless(part) for part in value] if isinstance(value, list) else value
