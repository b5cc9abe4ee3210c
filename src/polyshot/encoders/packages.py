"""Files and modules of other packages: where they are, whether they are what we expect, and how to install them."""

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from polyshot.errors import DataError, PolyshotError


class MissingPackageError(PolyshotError, ImportError):
    """A package that an encoder needs is not installed; the message has the command that installs it."""


@dataclass(frozen=True)
class PackagedFile:
    """A file inside an installed package, which is found without importing the package.

    sha256: what the file must be; None takes any, for formats that cannot run code.
    """

    package: str
    path: str
    install: str
    sha256: str | None = None

    def locate(self) -> Path:
        """The file, checked."""
        try:
            path = Path(str(distribution(self.package).locate_file(self.path)))
        except PackageNotFoundError:
            raise MissingPackageError(f"{self.package} is not installed; run: {self.install}") from None
        if not path.is_file():
            raise DataError(f"{path}: no such file, although {self.package} is installed; run: {self.install}")
        found = file_digest(path)
        if self.sha256 not in (None, found):
            raise DataError(
                f"{path}: not the file that polyshot knows (SHA-256 {found}, expected {self.sha256}), so it is not "
                f"read; install the version in constraints.txt: {self.install}"
            )
        return path

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return file_digest(self.locate())


def file_digest(path: Path) -> str:
    """SHA-256 of a file; computed again only when its size or time of change is another."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(*parts: str) -> str:
    """One digest of several texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of a network's weights, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def import_package(module: str, install: str) -> ModuleType:
    """Import a module, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            raise MissingPackageError(f"{module} is not installed; run: {install}") from None
        raise MissingPackageError(f"{module} is installed but cannot be imported ({error}); run: {install}") from error
