"""Versions of the packages that results may depend on."""

import platform
from importlib.metadata import version

_PACKAGES = ("polyshot", "torch", "numpy", "numba", "polyagamma", "safetensors")


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
