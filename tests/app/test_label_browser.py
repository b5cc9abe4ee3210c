"""The labelling page in a real Chromium."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_page import Page
from label_sessions import MARKUP, text_session, texts
from PIL import Image

from processes import start_polyshot, wait_for

_ENCODER = '''
import numpy as np
from polyshot.encoders import ENCODERS, Encoder

class Hue(Encoder):
    """The mean colour."""
    kind, title, licence, citation, digest, dimension = "images", "mean colour", "none", "nobody", "hue 1", 3
    def prepare(self, image):
        return np.asarray(image, np.float32).mean((0, 1))
    def encode(self, items):
        return np.stack(items)

ENCODERS.register("hue", Hue)
'''


def test_label_undo_skip_and_reload(page: Page, tmp_path: Path) -> None:
    with page.using(text_session(tmp_path / "labels.sqlite"), tmp_path / "out") as client:
        assert page.driver.current_url == f"http://127.0.0.1:{client.port}/"  # the token is gone from the address
        first = page.card()
        page.name_class("refund")
        second = page.card()
        page.name_class("login")
        assert page.classes() == ["refund", "login"]
        third = page.card()
        assert len({first, second, third}) == 3
        page.press("1")
        page.until(lambda: page.card() != third)
        page.saved(3)
        page.press("u")
        page.until(lambda: page.card() == third)
        page.saved(2)
        page.press("2")
        page.saved(3)
        page.press("0")
        page.until(lambda: "1 none of these" in page.text("#counts"))
        page.press("s")
        page.until(lambda: "1 skipped" in page.text("#counts"))
        before = (page.classes(), page.text("#counts"))
        page.driver.refresh()
        page.until(page.card)
        page.saved(3)
        assert (page.classes(), page.text("#counts")) == before
        assert client.get("/state").json["n"] == {"all": 60, "open": 55, "class": 3, "none": 1, "skip": 1}
        page.click("#tab-answers")
        page.until(lambda: page.count("#found .tile .p"))
        predicted = page.text("#found .what span:nth-child(2)")
        page.click("#found .tile")
        page.until(lambda: page.count(".best"))
        page.press("\ue007")  # Enter takes the most probable class
        page.until(lambda: page.text("#undo").startswith(f"Undo {predicted}"))


def test_markup_in_texts_and_classes_is_shown_as_text(page: Page, tmp_path: Path) -> None:
    with page.using(text_session(tmp_path / "labels.sqlite", [MARKUP, *texts()[1:20]]), tmp_path / "out"):
        page.click("#tab-answers")
        page.until(lambda: page.count("#found .tile") == 20)
        page.run(
            "[...document.querySelectorAll('#found .tile')].find(tile => tile.textContent.startsWith('<b>')).click()"
        )
        page.until(lambda: page.card() == MARKUP)
        page.name_class("<i>slanted</i>")
        page.saved(1)
        assert page.classes() == ["<i>slanted</i>"]
        assert page.count("#card b, #found b, i, img") == 0
        assert "hacked" not in page.driver.title


def test_two_tabs_agree(page: Page, tmp_path: Path) -> None:
    with page.using(text_session(tmp_path / "labels.sqlite"), tmp_path / "out") as client:
        item = page.card()
        page.new_tab(client.url)
        assert page.card() == item
        page.name_class("refund")
        page.saved(1)
        page.driver.switch_to.window(page.driver.window_handles[0])
        page.until(lambda: page.card() != item)  # the item is decided, so this tab goes on
        page.saved(1)
        assert page.classes() == ["refund"]
        page.press("1")
        page.saved(2)
        page.press("u")
        page.saved(1)
        page.driver.switch_to.window(page.driver.window_handles[1])
        page.saved(1)


def test_suspects_strangers_renaming_and_export(page: Page, tmp_path: Path) -> None:
    session = text_session(tmp_path / "labels.sqlite")
    with page.using(session, tmp_path / "out") as client:
        for k, name in enumerate(["refund", "login", "delivery"]):
            rows = [row for row in range(4, 52) if row % 4 == k]
            client.post("/decide", {"rows": rows, "kind": "class", "label": name, "seen": 0})
        client.post("/decide", {"rows": [52], "kind": "class", "label": "login", "seen": 9})
        page.saved(37)
        page.until(lambda: page.text("#tab-suspects b") == "1")
        page.click("#tab-suspects")
        assert page.text("#suspect-list .text") == texts()[52]
        page.click("#suspect-list .row button:first-child")
        page.until(lambda: texts()[52] not in page.text("#suspect-list"))
        page.click("#tab-strangers")
        page.until(lambda: page.count("#groups .member") > 2)
        page.click("#groups .member")  # leaves one out
        n = page.count("#groups .group:first-child .member") - 1
        page.run("document.querySelector('#groups input').value = 'thesis'")
        page.click("#groups .group:first-child .go")
        page.saved(37 + n)
        page.click("#tab-label")
        page.click("#class-list li:last-child button")
        page.driver.switch_to.active_element.send_keys("essay\n")
        page.until(lambda: page.classes()[-1] == "essay")
        page.saved(37 + n)
        page.click("#tab-export")
        assert page.count("#exports .tile") == 2  # texts are not sorted into folders
        page.click("#export-table")
        page.until(lambda: "labels.csv" in page.text("#exports"))
        assert (tmp_path / "out" / "labels.csv").read_text("utf-8").count(",essay,labelled,") == n


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1200, True)])
def test_nothing_is_wider_than_the_screen(page: Page, tmp_path: Path, width: int, dark: bool) -> None:
    items = ["a" * 300 + " money", *texts()]
    start = ["x" * 100, *[f"class {k}" for k in range(12)], *[None] * 48]
    with page.using(text_session(tmp_path / "labels.sqlite", items, start=start), tmp_path / "out"):
        command = page.driver.execute_cdp_cmd
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        command("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        command("Emulation.setEmulatedMedia", {"features": [scheme]})
        page.saved(13)
        for view in ("label", "answers", "suspects", "strangers", "export"):
            page.click(f"#tab-{view}")
            assert page.run("return document.documentElement.scrollWidth") <= width
        colour = page.run("return getComputedStyle(document.body).backgroundColor")
        assert colour == ("rgb(19, 19, 23)" if dark else "rgb(246, 245, 242)")
        command("Emulation.clearDeviceMetricsOverride", {})
        command("Emulation.setEmulatedMedia", {"features": []})


@contextmanager
def server(folder: Path, output: Path) -> Iterator[tuple[Any, str]]:
    """`polyshot label` of the photos in another process, and its address."""
    words = ["--plugin", "cheap", "label", "photos", "--encoder", "hue", "--no-browser"]
    process = start_polyshot(folder, words, output, {"XDG_CACHE_HOME": str(folder / "cache")})
    try:
        yield process, wait_for(r"open (http\S+)", output, process)
    finally:
        process.kill()
        process.join()


def test_five_thousand_images_and_a_killed_server(page: Page, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "cheap.py").write_text(_ENCODER)
    (tmp_path / "photos").mkdir()
    pixels = np.array([[220, 30, 30], [30, 200, 40], [40, 60, 220]], np.uint8)[np.arange(5000) % 3, None, None]
    for k, noise in enumerate(rng.integers(0, 30, (5000, 4, 4, 3), dtype=np.uint8)):
        Image.fromarray(pixels[k] + noise).save(tmp_path / "photos" / f"{k:04}.bmp")
    colours = ["red", "green", "blue"]

    def answer() -> None:
        shown = page.card()
        colour = colours[int(shown[:4]) % 3]
        if colour in page.classes():
            page.press(str(page.classes().index(colour) + 1))
        else:
            page.name_class(colour)
        page.until(lambda: page.card() != shown)

    with server(tmp_path, tmp_path / "first") as (process, url):
        page.open(url)
        page.until(lambda: page.run("return document.querySelector('#card img').naturalWidth") == 4)
        for _ in range(6):
            answer()
        page.saved(6)
        counts = page.text("#counts")
        process.kill()
        process.join()
        page.press("1")
        page.until(lambda: "The server does not answer" in page.text("#banner"))
    page.leave()
    page.driver.get_log("browser")  # the lost connection
    with server(tmp_path, tmp_path / "second") as (process, url):
        page.open(url)
        page.saved(6)
        assert page.text("#counts") == counts
        answer()
        page.saved(7)
        page.click("#tab-answers")
        page.until(lambda: page.text("#total") == "4,993 items")
        assert page.count("#found .tile") == 60
        page.click("#more")
        page.until(lambda: page.count("#found .tile") == 120)
        page.leave()
        process.terminate()
        process.join()
        assert process.exitcode in (0, -signal.SIGTERM)
