"""The protocol's transforms: from stored examples to what a network takes, on whole batches.

A transform is a callable (examples, rng) -> float32 tensor. `rng` is a numpy Generator, so that an episode's
augmentation follows from its seed alone. This is plain torch: an augmentation library would be a large dependency for
60 lines, and none matches the jitter (Pillow's ImageEnhance, as in Chen et al.'s code).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

Transform: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_GREY = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow


def identity(x: Float[Tensor, "n ..."], rng: np.random.Generator) -> Float[Tensor, "n ..."]:
    """Return embeddings, or features of any shape, as they are."""
    return x


def scale_characters(x: UInt8[Tensor, "n c h w"], rng: np.random.Generator) -> Float[Tensor, "n c h w"]:
    """Scale characters to [0, 1], ink = 1; no augmentation."""
    return x.to(torch.float32).div_(255)


def normalize(x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 3 h w"]:
    """Subtract ImageNet's mean from pixels in [0, 1] and divide by its deviation, in place."""
    return x.sub_(torch.tensor(IMAGENET_MEAN)[:, None, None]).div_(torch.tensor(IMAGENET_STD)[:, None, None])


def uncropped(size: int) -> int:
    """Return the side to which a test image is resized before its centre of `size` pixels is cropped."""
    return int(size * 1.15)


@dataclass(frozen=True)
class NaturalTest:
    """Resize to 1.15 x size, crop the centre of size, normalise."""

    size: int = 84

    def __call__(self, x: UInt8[Tensor, "n 3 h w"], rng: np.random.Generator) -> Float[Tensor, "n 3 s s"]:
        """Deterministic: `rng` is not used."""
        return normalize(self.crop(x).div(255))

    def crop(self, x: UInt8[Tensor, "n 3 h w"]) -> Float[Tensor, "n 3 s s"]:
        """What the network sees, in pixels from 0 to 255."""
        full = uncropped(self.size)
        start = (full - self.size) // 2
        x = F.interpolate(x.to(torch.float32), size=(full, full), mode="bilinear", antialias=True)
        return x[..., start : start + self.size, start : start + self.size]


def normalize_crops(x: UInt8[Tensor, "n 3 s s"], rng: np.random.Generator) -> Float[Tensor, "n 3 s s"]:
    """Normalise images that have the network's size already."""
    return normalize(x.to(torch.float32).div_(255))


@dataclass(frozen=True)
class NaturalTrain:
    """Random resized crop, jitter of brightness, contrast and colour, horizontal flip, normalise."""

    size: int = 84
    jitter: float = 0.4

    def __call__(self, x: UInt8[Tensor, "n 3 h w"], rng: np.random.Generator) -> Float[Tensor, "n 3 s s"]:
        """Every image draws its own crop, jitter and flip from `rng`."""
        box = random_boxes(len(x), x.shape[2], x.shape[3], rng)
        flip = rng.choice(np.array([-1.0, 1.0], np.float32), len(x))
        factors = rng.uniform(1 - self.jitter, 1 + self.jitter, (3, len(x), 1, 1, 1)).astype(np.float32)
        cropped = crop_resize(x.to(torch.float32).div_(255), box, torch.from_numpy(flip), self.size)
        return normalize(color_jitter(cropped, torch.from_numpy(factors)))


def random_boxes(n: int, height: int, width: int, rng: np.random.Generator) -> Float[Tensor, "n 4"]:
    """Draw crops (centre x, centre y, width, height) as fractions of the image.

    Inception's rule: area 8 to 100 %, aspect 3/4 to 4/3, ten attempts to fit, then the whole image.
    """
    area = rng.uniform(0.08, 1.0, (n, 10)) * height * width
    aspect = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3), (n, 10)))
    w, h = np.sqrt(area * aspect) / width, np.sqrt(area / aspect) / height
    fits = (w <= 1) & (h <= 1)
    first, rows = fits.argmax(axis=1), np.arange(n)
    w, h = (np.where(fits.any(axis=1), side[rows, first], 1.0) for side in (w, h))
    x, y = (side / 2 + rng.uniform(size=n) * (1 - side) for side in (w, h))
    return torch.from_numpy(np.stack([x, y, w, h], axis=1).astype(np.float32))


def crop_resize(
    x: Float[Tensor, "n c h w"], box: Float[Tensor, "n 4"], flip: Float[Tensor, "n"], size: int
) -> Float[Tensor, "n c s s"]:
    """Cut out each image's box and resize it bilinearly; flip = -1 mirrors it."""
    theta = torch.zeros(len(x), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = box[:, 2] * flip, box[:, 3]
    theta[:, :, 2] = 2 * box[:, :2] - 1
    grid = F.affine_grid(theta, [len(x), x.shape[1], size, size], align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def color_jitter(x: Float[Tensor, "n 3 h w"], factors: Float[Tensor, "3 n 1 1 1"]) -> Float[Tensor, "n 3 h w"]:
    """Change brightness, contrast and colour by the given factors as Pillow's ImageEnhance, on pixels in [0, 1]."""
    brightness, contrast, color = factors
    x = (x * brightness).clamp_(0, 1)
    x = torch.lerp(_grey(x).mean(dim=(1, 2, 3), keepdim=True), x, contrast).clamp_(0, 1)
    return torch.lerp(_grey(x), x, color).clamp_(0, 1)


def _grey(x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1 h w"]:
    return torch.einsum("nchw,c->nhw", x, torch.tensor(_GREY))[:, None]
