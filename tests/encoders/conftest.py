import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))


@pytest.fixture
def pixels() -> np.ndarray:
    """Four colour images with one clear colour each."""
    rng = np.random.default_rng(0)
    base = np.array([[200, 30, 30], [30, 200, 30], [30, 30, 200], [180, 180, 40]])
    return (base[:, None, None] + rng.integers(0, 30, (4, 24, 36, 3))).astype(np.uint8)


@pytest.fixture
def photos(tmp_path: Path, pixels: np.ndarray) -> list[Path]:
    """The same images as PNG files."""
    paths = [tmp_path / f"photo{i}.png" for i in range(len(pixels))]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    return paths


@pytest.fixture
def jpeg(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels[0]).save(buffer, "JPEG")
    return buffer.getvalue()
