"""Bayesian few-shot classification with one-vs-each Pólya-Gamma Gaussian processes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyshot.system.extras import missing_extra

if TYPE_CHECKING:
    from polyshot.estimator import OneVsEachClassifier
    from polyshot.runs.trained import load

    __version__: str

_HOMES = {"OneVsEachClassifier": "polyshot.estimator", "load": "polyshot.runs.trained"}

__all__ = ["OneVsEachClassifier", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import polyshot.gp` loads nothing else."""
    if name in _HOMES:
        try:
            return getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            raise (ImportError(f"polyshot.{name}: {how}") if (how := missing_extra(error)) else error) from error
    if name == "__version__":
        from importlib.metadata import version

        return version("polyshot")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
