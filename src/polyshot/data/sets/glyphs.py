"""Characters drawn from the DejaVu fonts that come with matplotlib: a data set that needs no file.

A class is a letter or digit that at least four of the twelve faces have. Letters that look the same (Latin A, Greek
Alpha) are one class, that of the first script. An example is a random face under a random affine map and a smooth
random warp. Classes are split by script.
"""

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import PIL
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from polyshot.data.class_splits import Splits
from polyshot.data.dataset import DataSet
from polyshot.data.packed import Array

SEED = 2021
EXAMPLES = 24  # per class
_CANVAS = 56  # drawn at twice the size, then averaged down
_MIN_FACES = 4
_SPLITS = Splits.packaged("glyphs")


def draw(seed: int = SEED) -> Mapping[str, Array]:
    """Draw all classes, EXAMPLES each, 28x28, 255 = ink; the same seed gives the same images."""
    rng = np.random.default_rng(seed)
    names, masters = [], []
    for name, faces in _classes():
        # every face is used before any is used again
        order = np.concatenate([rng.permutation(len(faces)) for _ in range(-(-EXAMPLES // len(faces)))])
        names.append(name)
        masters.append(faces[order[:EXAMPLES]])
    return {
        "images": torch.cat([jitter(torch.from_numpy(examples), rng) for examples in masters]).numpy(),
        "labels": np.repeat(np.arange(len(names), dtype=np.int16), EXAMPLES),
        "class_names": np.array(names),
        "seed": np.array(seed),
    }


def fingerprint() -> str:
    """Return a text that changes with everything that the pixels depend on: fonts, Pillow, this file."""
    digest = hashlib.sha256(f"{PIL.__version__} {SEED}".encode())
    for file in [Path(__file__), *font_files()]:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def font_files() -> list[Path]:
    """Return the twelve DejaVu faces, DejaVuSans first."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    faces = [file for file in folder.glob("DejaVu*.ttf") if "Display" not in file.stem]
    return sorted(faces, key=lambda file: (file.stem != "DejaVuSans", file.stem))


def _classes() -> Iterator[tuple[str, UInt8[np.ndarray, "faces side side"]]]:
    """Yield names such as `GREEK/SMALL LETTER ALPHA` with the character in every face that has it."""
    from matplotlib.ft2font import FT2Font

    files = font_files()
    fonts = [ImageFont.truetype(str(file), 36) for file in files]
    charmaps = [set(FT2Font(str(file)).get_charmap()) for file in files]
    scripts = {script for members in _SPLITS.members.values() for script in members}
    seen: set[bytes] = set()
    for code in sorted(charmaps[0]):
        character = chr(code)
        if unicodedata.category(character) not in {"Lu", "Ll", "Lt", "Lo", "Nd"}:
            continue
        name = unicodedata.name(character)
        having = [font for font, charmap in zip(fonts, charmaps, strict=True) if code in charmap]
        if name.split()[0] not in scripts or len(having) < _MIN_FACES:
            continue
        reference = _render(character, fonts[0])
        if reference.tobytes() in seen or not reference.any():
            continue
        seen.add(reference.tobytes())
        yield name.replace(" ", "/", 1), np.stack([_render(character, font) for font in having])


def _render(character: str, font: ImageFont.FreeTypeFont) -> UInt8[np.ndarray, "side side"]:
    """Draw one character, centred by its ink on a square canvas."""
    image = Image.new("L", (2 * _CANVAS, 2 * _CANVAS))
    ImageDraw.Draw(image).text((_CANVAS, _CANVAS), character, fill=255, font=font, anchor="mm")
    left, top, right, bottom = image.getbbox() or (0, 0, 1, 1)
    side = max(_CANVAS, right - left + 4, bottom - top + 4)
    x, y = (left + right - side) // 2, (top + bottom - side) // 2
    square = image.crop((x, y, x + side, y + side))
    return np.asarray(square if side == _CANVAS else square.resize((_CANVAS, _CANVAS), Image.Resampling.BOX))


def jitter(masters: UInt8[Tensor, "n side side"], rng: np.random.Generator) -> UInt8[Tensor, "n 28 28"]:
    """Turn, shear, stretch, shift and warp each image at random, then halve its size."""
    n = len(masters)
    angle, shear = rng.uniform(-0.25, 0.25, n), rng.uniform(-0.3, 0.3, n)
    scale = rng.uniform(0.8, 1.15, (n, 2))
    cos, sin = np.cos(angle), np.sin(angle)
    theta = np.empty((n, 2, 3), np.float32)
    theta[:, 0, 0], theta[:, 0, 1] = cos / scale[:, 0], (shear * cos - sin) / scale[:, 1]
    theta[:, 1, 0], theta[:, 1, 1] = sin / scale[:, 0], (shear * sin + cos) / scale[:, 1]
    theta[:, :, 2] = rng.uniform(-0.2, 0.2, (n, 2))
    grid = F.affine_grid(torch.from_numpy(theta), [n, 1, _CANVAS, _CANVAS], align_corners=False)
    grid = grid + _warp(rng.normal(0, 0.06, (n, 2, 4, 4)))
    pixels = F.grid_sample(masters[:, None].to(torch.float32), grid, align_corners=False)
    return F.avg_pool2d(pixels, 2)[:, 0].round_().to(torch.uint8)


def _warp(knots: Float[np.ndarray, "n 2 4 4"]) -> Float[Tensor, "n side side 2"]:
    """Interpolate the displacements of a 4 x 4 net smoothly."""
    net = torch.from_numpy(knots.astype(np.float32))
    filled = F.interpolate(net, size=(_CANVAS, _CANVAS), mode="bicubic", align_corners=True)
    return filled.permute(0, 2, 3, 1)


DATASET = DataSet(
    name="glyphs",
    title="glyphs",
    summary="letters of 13 scripts drawn from the DejaVu fonts, built in",
    kind="characters",
    official="built in: drawn from the DejaVu fonts of matplotlib, and kept in the cache folder",
    licence="that of the fonts (Bitstream Vera and DejaVu, free)",
    citation="polyshot",
    make=draw,
    version=fingerprint,
    size=28,
    splits=_SPLITS,
)
