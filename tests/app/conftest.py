import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_page import Page
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


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """A Chromium without a window."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("needs the executables chromium and chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        "--window-size=1200,900",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield found
    found.quit()


@pytest.fixture
def page(driver: Any) -> Iterator[Page]:
    """A browser whose page must have no error in its console."""
    driver.get_log("browser")
    yield Page(driver)
    assert [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
