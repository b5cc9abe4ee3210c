"""Bring what people have (image files, arrays, embeddings) into the form that a run's network takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from polyshot.data.images import centre_character, fit_square, map_images, open_image
from polyshot.data.transforms import NaturalTest, scale_characters
from polyshot.errors import InputError
from polyshot.task import Space

Examples: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[str | Path]  # a sequence names image files
Array: TypeAlias = npt.NDArray[Any]
Result = TypeVar("Result")

_RNG = np.random.default_rng(0)  # the test transforms draw nothing from it
_CONTRAST = 32.0  # grey levels; what differs less from the paper is not ink
_LOOKED_AT = 64  # pixels per side when colours are looked at
_COLOURS = 8.0  # levels by which the colours of a photograph scatter around the line from paper to ink
_TAKES = {
    "embeddings": "embeddings [n, {0}]",
    "characters": "image files, uint8 images [n, h, w] or [n, 1, h, w], or floats [n, {0}, {1}, {2}] with ink = 1",
    "natural": "image files, uint8 images [n, 3, h, w], or normalised floats [n, {0}, {1}, {2}]",
}


@dataclass(frozen=True)
class Intake:
    """Brings examples into the form that a run was trained on.

    Photographs are centre-cropped, resized and normalised. Characters become grey, bright ink on black; those of
    another size than the run's are also stretched to full contrast, centred by their ink and resized. Floats are
    taken as they are.

    Attributes
    ----------
    space : Space
        What the run's method was built for.
    dark_ink : bool
        Whether characters have dark ink on light paper, so that they must be inverted.
    """

    space: Space
    dark_ink: bool = False

    @classmethod
    def fitting(cls, space: Space, support: Examples) -> "Intake":
        """Decide by the borders of the support images whether paper is light or dark; all images are then read so."""
        if space.kind != "characters" or (not _are_files(support) and _tensor(support).dtype != torch.uint8):
            return cls(space)
        levels = _map_grey(space, support, lambda image: float(np.median(_border(np.asarray(image)))))
        return cls(space, bool(np.median(levels) > 127))

    @property
    def note(self) -> str:
        """What was found out about the images, to be shown to the user."""
        if self.space.kind != "characters":
            return ""
        return "dark ink on light paper, inverted" if self.dark_ink else "bright ink on dark paper"

    def __call__(self, x: Examples) -> Tensor:
        """Return float32 [n, *shape]."""
        kind, size = self.space.kind, self.space.shape[-1]
        tensor = None if _are_files(x) else _tensor(x)
        if tensor is not None and tensor.shape[1:] == self.space.shape and tensor.dtype != torch.uint8:
            return tensor.float()
        if kind == "embeddings":
            raise _wrong(self.space, x)
        if kind == "characters":
            pixels = np.stack(_map_grey(self.space, x, self._character))
            return scale_characters(torch.from_numpy(pixels)[:, None], _RNG)
        return NaturalTest(size)(_color_squares(self.space, x), _RNG)

    def _character(self, image: Image.Image) -> Array:
        height, width = self.space.shape[1:]
        grey: Array = np.asarray(image)
        if self.dark_ink:
            grey = 255 - grey
        if grey.shape == (height, width):
            return grey
        paper = np.median(_border(grey))
        ink = _stretched(grey - paper)
        rows, columns = np.nonzero(ink > 127)
        box = (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1) if len(rows) else None
        # stretched again: thin strokes fade when shrunk
        return _stretched(np.asarray(centre_character(Image.fromarray(ink), box, width), np.float64))


def in_many_colours(files: Sequence[str | Path]) -> list[bool]:
    """Whether each image has more colours than ink on paper, whose colours lie on a line: photographs do.

    It is the second principal component of the colours that tells. Grey photographs are not found.
    """

    def many(file: str | Path) -> bool:
        pixels = np.asarray(open_image(Path(file), "RGB").resize((_LOOKED_AT, _LOOKED_AT)), np.float64).reshape(-1, 3)
        return bool(np.linalg.eigvalsh(np.cov(pixels.T))[1] > _COLOURS**2)

    return _map_files(many, files)


def _map_grey(space: Space, x: Examples, function: Callable[[Image.Image], Result]) -> list[Result]:
    if _are_files(x):
        return _map_files(lambda file: function(open_image(Path(file), "L")), cast(Sequence[str | Path], x))
    pixels = _tensor(x)
    pixels = pixels[:, 0] if pixels.ndim == 4 and pixels.shape[1] == 1 else pixels
    if pixels.dtype != torch.uint8 or pixels.ndim != 3:
        raise _wrong(space, x)
    return [function(Image.fromarray(image)) for image in pixels.numpy()]


def _color_squares(space: Space, x: Examples) -> Tensor:
    """Return uint8 [n, 3, s, s], the middle of each image."""
    if _are_files(x):
        full = int(space.shape[-1] * 1.15)  # what NaturalTest crops from
        files = cast(Sequence[str | Path], x)
        arrays = _map_files(lambda file: np.asarray(fit_square(open_image(Path(file), "RGB"), full)), files)
        return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)
    pixels = _tensor(x)
    if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != 3:
        raise _wrong(space, x)
    height, width = pixels.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return pixels[:, :, top : top + side, left : left + side]


def _map_files(function: Callable[[str | Path], Result], files: Sequence[str | Path]) -> list[Result]:
    return map_images(function, files, [str(file) for file in files], "the images")


def _are_files(x: Examples) -> bool:
    return not isinstance(x, (Tensor, np.ndarray)) and len(x) > 0 and isinstance(x[0], (str, Path))


def _tensor(x: Examples) -> Tensor:
    try:
        return x.detach().cpu() if isinstance(x, Tensor) else torch.from_numpy(np.asarray(x))
    except (TypeError, ValueError) as error:
        raise InputError(f"examples must be an array, a tensor or a list of image files: {error}") from error


def _wrong(space: Space, x: Examples) -> InputError:
    got = "image files" if _are_files(x) else f"{_tensor(x).dtype} {list(_tensor(x).shape)}"
    return InputError(f"the run takes {_TAKES[space.kind].format(*space.shape)}; got {got}")


def _border(grey: Array) -> Array:
    return np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])


def _stretched(ink: Array) -> Array:
    """Map zero and below to 0, the brightest to 255."""
    levels: Array = 255 * (ink / max(ink.max(), _CONTRAST)).clip(0, 1)
    return levels.round().astype(np.uint8)
