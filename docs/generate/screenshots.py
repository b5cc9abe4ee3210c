"""Make the screenshots of the pages of `polyshot classify` and `polyshot label`, wide and narrow, light and dark.

    python docs/generate/screenshots.py [photos] [sentences] [label]

The photographs are drawn here, the sentences made up. Needs the executables chromium and chromedriver, and selenium.
"""

import io
import math
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from polyshot.app import ItemClassifier, Items, classify, read_labelled, read_queries, write_page
from polyshot.app.labelling import Decision, Exports, Server, Session, open_session

FIGURES = Path(__file__).parents[1] / "figures"
SIZE = 800, 600  # of a drawing; a photograph has half of it
WIDE, NARROW = (1200, 800), (390, 780)
# length and width of a petal, their number, their colours, the radius and colour of the centre
FLOWERS = {
    "daisy": (150, 46, 17, ("#ffffff", "#e6e6ee"), 50, "#f2c230"),
    "poppy": (155, 200, 5, ("#d92626", "#b81c1c"), 36, "#241c22"),
    "cornflower": (140, 62, 11, ("#3f5fd8", "#2c43ad"), 44, "#43307f"),
}
SENTENCES = {
    "refund": (
        "I want my money back", "please refund my order", "can I return this", "how do I send it back",
        "the item broke, refund me", "cancel the order", "I would like to return the shoes",
    ),
    "login": (
        "I cannot log in", "my password is rejected", "the site does not accept my password",
        "I forgot my password", "my account is locked", "reset my login", "the login page shows an error",
    ),
    "delivery": (
        "where is my parcel", "my package has not arrived", "when will my order be delivered",
        "the delivery is late", "track my shipment", "has my order been shipped", "the courier did not come",
    ),
}  # fmt: skip
QUESTIONS = (
    "please recommend a recipe for pasta", "I sent it back but got no money", "the app does not know my password",
    "is my package on its way", "my order came to the wrong address", "give me my money back",
)  # fmt: skip
TULIPS = (("#f0c048", "#cf9f30"), ("#e6508c", "#bf356c"))


def petal(base: tuple[float, float], angle: float, length: float, width: float) -> list[tuple[float, float]]:
    """The outline of a petal that grows from `base`."""
    along, across = (math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))
    found = []
    for t in np.linspace(0, 2 * math.pi, 60):
        u, v = length * (1 - math.cos(t)) / 2, width / 2 * math.sin(t) * (1 - 0.25 * math.cos(t))
        found.append((base[0] + u * along[0] + v * across[0], base[1] + u * along[1] + v * across[1]))
    return found


def photograph(kind: str, rng: np.random.Generator) -> Image.Image:
    """A made-up photograph of a daisy, poppy, cornflower, tulip or mushroom in the grass."""
    width, height = SIZE
    sky, ground = (
        np.array((150, 190, 230)) + rng.integers(-25, 20, 3),
        np.array((60, 120, 50)) + rng.integers(-20, 20, 3),
    )
    rows = np.linspace(0, 1, height)[:, None, None] ** 0.8
    image = Image.fromarray(np.broadcast_to((1 - rows) * sky + rows * ground, (height, width, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(160):
        x, y, lean = rng.uniform(0, width), rng.uniform(0.4, 0.85) * height, rng.uniform(-50, 50)
        green = (int(rng.integers(30, 110)), int(rng.integers(100, 180)), int(rng.integers(30, 80)))
        draw.polygon([(x - 9, height), (x + 9, height), (x + lean, y)], fill=green)
    image = image.filter(ImageFilter.GaussianBlur(7))
    draw = ImageDraw.Draw(image)
    for k in range(int(rng.integers(1, 3))):
        x, y = width * rng.uniform(0.35, 0.65) + 190 * k, height * rng.uniform(0.35, 0.5) + 50 * k
        _draw(draw, kind, x, y, rng.uniform(0.75, 1.15), rng)
    return image.resize((width // 2, height // 2), Image.Resampling.LANCZOS)


def _draw(draw: ImageDraw.ImageDraw, kind: str, x: float, y: float, scale: float, rng: np.random.Generator) -> None:
    def disc(u: float, v: float, radius: float, colour: str, flat: float = 1) -> None:
        draw.ellipse((u - radius, v - radius * flat, u + radius, v + radius * flat), fill=colour)

    if kind == "mushroom":
        draw.polygon([(x - 45, y), (x + 45, y), (x + 55, SIZE[1]), (x - 55, SIZE[1])], fill="#e9e0cf")
        draw.pieslice((x - 170 * scale, y - 150, x + 170 * scale, y + 150), 180, 360, fill="#a2552e")
        for u, v in ((-90, -40), (-20, -95), (60, -60), (110, -25), (0, -35)):
            disc(x + u * scale, y + v, 17, "#e3c9a8", 0.7)
        return
    draw.line([(x, y), (x + rng.uniform(-40, 40), SIZE[1])], fill="#3d6b2c", width=14)
    if kind == "tulip":
        light, dark = TULIPS[int(rng.integers(2))]
        for tilt, colour in ((-0.32, dark), (0.32, dark), (0, light)):
            draw.polygon(petal((x, y + 120), -math.pi / 2 + tilt, 260 * scale, 125 * scale), fill=colour)
        return
    length, width, n, colours, radius, centre = FLOWERS[kind]
    turn = rng.uniform(0, math.pi)
    for k in range(n):
        outline = petal((x, y), turn + 2 * math.pi * k / n, length * scale, width * scale)
        draw.polygon(outline, fill=colours[k % 2])
    disc(x, y, radius * scale, centre)


def write_photographs(
    folder: Path, counts: dict[str, int], seed: int, name: Callable[[str, int], str]
) -> dict[str, str]:
    """So many photographs of each kind, with such names; returns the kind of each name."""
    rng = np.random.default_rng(seed)
    found = {}
    for number, kind in enumerate(rng.permutation([kind for kind, n in counts.items() for _ in range(n)]).tolist()):
        file = folder / name(kind, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        photograph(kind, rng).save(file, quality=92)
        found[name(kind, number)] = kind
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a window."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def shoot(driver: Any, url: str, file: str, size: tuple[int, int], scheme: str, ready: str = "true") -> None:
    """Save what the window shows once the script says that the page is ready."""
    import base64

    from selenium.webdriver.support.wait import WebDriverWait

    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}  # no scrollbars
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    driver.get(url)
    WebDriverWait(driver, 30).until(lambda found: found.execute_script(f"return {ready}"))
    driver.execute_async_script("setTimeout(arguments[0], 500)")  # transitions
    overflow = driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
    data = base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
    Image.open(io.BytesIO(data)).convert("RGB").save(FIGURES / file, optimize=True)
    print(f"{file}: {(FIGURES / file).stat().st_size // 1000} kB, overflow {overflow} px")


def shoot_all(driver: Any, url: str, name: str, ready: str = "true") -> None:
    """Wide and narrow, light and dark."""
    for width, size in (("", WIDE), ("-narrow", NARROW)):
        for scheme in ("light", "dark"):
            shoot(driver, url, f"{name}{width}{'-dark' * (scheme == 'dark')}.png", size, scheme, ready)


def photos_page(folder: Path, driver: Any) -> None:
    """The page of answers about flowers and two mushrooms, which are none of the classes."""
    write_photographs(folder / "examples", dict.fromkeys([*FLOWERS, "tulip"], 8), 0, lambda kind, k: f"{kind}/{k}.jpg")
    counts = dict.fromkeys([*FLOWERS, "tulip"], 10) | {"mushroom": 2}
    write_photographs(folder / "photos", counts, 1, lambda kind, k: f"IMG_{4101 + 7 * k}.jpg")
    examples, queries = read_labelled(folder / "examples"), read_queries(folder / "photos")
    result = classify(ItemClassifier.fit(examples.items, examples.labels, pool=queries), queries)
    write_page(result, folder / "answers.html")
    result.forget_parts()
    shoot_all(driver, (folder / "answers.html").as_uri(), "classify")


def sentences_page(folder: Path, driver: Any) -> None:
    """The page of answers about sentences; a recipe is none of the classes."""
    texts = [text for members in SENTENCES.values() for text in members]
    labels = [name for name, members in SENTENCES.items() for _ in members]
    queries = Items.of("text", QUESTIONS)
    result = classify(ItemClassifier.fit(Items.of("text", texts), labels, pool=queries), queries, n_next=0)
    write_page(result, folder / "answers.html")
    result.forget_parts()
    shoot(driver, (folder / "answers.html").as_uri(), "classify-text.png", WIDE, "light")


def label_page(folder: Path, driver: Any) -> None:
    """The labelling page after 48 decisions."""
    counts = dict.fromkeys([*FLOWERS, "tulip"], 45) | {"mushroom": 6}
    kinds = write_photographs(folder / "flowers", counts, 2, lambda kind, k: f"IMG_{4101 + 7 * k}.jpg")
    session, _ = open_session(folder / "flowers", folder / "labels.sqlite")
    with session:
        for _ in range(48):
            row = session.queue()[0]
            kind = kinds[session.items.names[row]]
            decision = Decision("none") if kind == "mushroom" else Decision("class", kind)
            session.decide([row], decision, session.decisions.version)
            session.wait()
        _serve(session, folder, lambda url: shoot_all(driver, url, "label", "document.querySelector('#card img')"))


def _serve(session: Session, folder: Path, use: Callable[[str], None]) -> None:
    server = Server(session, Exports(session, folder / "out"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        use(server.url)
    finally:
        server.stop()
        thread.join()


def main() -> None:
    """Make the screenshots of the pages named, or of all."""
    pages = {"photos": photos_page, "sentences": sentences_page, "label": label_page}
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        for name in sys.argv[1:] or pages:
            place = Path(folder, name)
            place.mkdir()
            pages[name](place, driver)
            driver.get("about:blank")


if __name__ == "__main__":
    main()
