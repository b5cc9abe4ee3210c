"""JSON files that carry a checksum of their content, so that a changed digit is found and not believed."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyshot.errors import DataError
from polyshot.system.files import write_atomically

_KEY = "sha256"
_MOST_BYTES = 2**20
REMEDY = "restore it from a copy, or delete it and create it again"


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum."""
    text = json.dumps({**content, _KEY: digest(content)}, indent=2, sort_keys=True)
    write_atomically(path, (text + "\n").encode())


def read_sealed(path: Path, most_bytes: int = _MOST_BYTES) -> tuple[dict[str, Any], bool]:
    """Read a JSON object and verify its checksum; also return whether it has one (the first edition wrote none)."""
    try:
        text = path.read_bytes() if path.stat().st_size <= most_bytes else None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from error
    if text is None:
        raise DataError(f"{path}: larger than {most_bytes} bytes, so it was not written by polyshot")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged, not a JSON file ({error}); {REMEDY}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: damaged, not a JSON object; {REMEDY}")
    checksum = content.pop(_KEY, None)
    if checksum is not None and checksum != digest(content):
        raise DataError(f"{path}: damaged or edited, its content does not match its checksum; {REMEDY}")
    return content, checksum is not None
