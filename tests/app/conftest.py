from pathlib import Path

import numpy as np
import pytest
from PIL import Image

COLOURS = {"blue": (30, 40, 200), "green": (40, 180, 40), "red": (200, 40, 30)}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))


def save_colour(path: Path, colour: tuple[int, int, int], rng: np.random.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.clip(np.array(colour) + rng.integers(-20, 20, (20, 30, 3)), 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with examples/CLASS/*.png, eight per class, and queries/*.png, two per class."""
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        for k in range(8):
            save_colour(tmp_path / "examples" / name / f"{k}.png", colour, rng)
        for k in range(2):
            save_colour(tmp_path / "queries" / f"{name}{k}.png", colour, rng)
    return tmp_path
