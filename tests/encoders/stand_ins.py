"""Small encoders that count their calls, and a way to skip a test by name."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polyshot.encoders import Encoder


def need(*packages: str) -> None:
    """Skip the test unless the packages are installed; they are not imported."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed (docs/encoders.md)")


class Lengths(Encoder):
    """A text's length and its number of letters a."""

    kind = "text"
    title, licence, citation = "lengths", "none", "nobody"
    dimension = 2

    def __init__(self, digest: str | None = "lengths-1") -> None:
        self.digest = digest
        self.seen: list[str] = []

    def encode(self, items: Sequence[Any]) -> np.ndarray:
        self.seen.extend(items)
        return np.array([[len(text), text.count("a")] for text in items], np.float32)


class MeanColour(Encoder):
    """The mean of each channel."""

    kind = "images"
    title, licence, citation = "mean colour", "none", "nobody"
    dimension = 3

    def __init__(self, digest: str | None = "mean-colour-1") -> None:
        self.digest = digest
        self.n_encoded = 0
        self.most_at_once = 0

    def prepare(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image, np.float32).mean((0, 1))

    def encode(self, items: Sequence[Any]) -> np.ndarray:
        self.n_encoded += len(items)
        self.most_at_once = max(self.most_at_once, len(items))
        return np.stack(items)
