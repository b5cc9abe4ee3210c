"""Bayesian few-shot classification with one-vs-each Pólya-Gamma Gaussian processes."""

from typing import TYPE_CHECKING, Any

from polyshot.prediction import load

if TYPE_CHECKING:
    from polyshot.estimator import OneVsEachClassifier

__all__ = ["OneVsEachClassifier", "load"]


def __getattr__(name: str) -> Any:
    """The estimator when it is asked for: scikit-learn takes longer to import than all the rest but torch."""
    if name != "OneVsEachClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from polyshot.estimator import OneVsEachClassifier

    return OneVsEachClassifier


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
