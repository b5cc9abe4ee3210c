"""Three corruptions of Hendrycks & Dietterich (2019), equal to those of the `imagecorruptions` package.

The code is our own, so that images of any size can be corrupted (the package refuses less than 32 pixels), from a
seed, and without OpenCV at run time. Image i of a batch draws from the stream (seed, i).
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from polyshot.errors import InputError

_GAUSSIAN_SCALE = (0.08, 0.12, 0.18, 0.26, 0.38)
_IMPULSE_AMOUNT = (0.03, 0.06, 0.09, 0.17, 0.27)
_DISK = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))  # radius, deviation of the smoothing


def corrupt(images: UInt8[Tensor, "n c h w"], corruption: str, severity: int, seed: int) -> UInt8[Tensor, "n c h w"]:
    """Corrupt every image.

    Parameters
    ----------
    images : uint8 tensor [n, c, h, w]
        The images; they are not changed.
    corruption : {"gaussian_noise", "impulse_noise", "defocus_blur"}
        Which corruption.
    severity : int
        From 1 to 5.
    seed : int
        Seed of the noise.

    Returns
    -------
    uint8 tensor [n, c, h, w]
        The corrupted images.
    """
    if corruption not in CORRUPTIONS:
        raise InputError(f"unknown corruption {corruption!r}; choose from {', '.join(CORRUPTIONS)}")
    if severity not in range(1, 6):
        raise InputError(f"severity must be 1, 2, 3, 4 or 5, not {severity}")
    return CORRUPTIONS[corruption](images, severity, seed) if len(images) else images.clone()


def gaussian_noise(images: UInt8[Tensor, "n c h w"], severity: int, seed: int) -> UInt8[Tensor, "n c h w"]:
    """Add normal noise to every pixel and channel, clipped."""
    scale = np.float32(255 * _GAUSSIAN_SCALE[severity - 1])

    def one(image: npt.NDArray[np.uint8], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
        noise = rng.standard_normal(image.shape, np.float32)
        return np.clip(image + scale * noise, 0, 255).astype(np.uint8)

    return _each(one, images, seed)


def impulse_noise(images: UInt8[Tensor, "n c h w"], severity: int, seed: int) -> UInt8[Tensor, "n c h w"]:
    """Add salt and pepper in equal parts to every pixel and channel."""
    amount = _IMPULSE_AMOUNT[severity - 1]

    def one(image: npt.NDArray[np.uint8], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
        u = rng.random(image.shape, np.float32)
        salted = np.where(u < amount / 2, np.uint8(255), image)
        return np.where(u > 1 - amount / 2, np.uint8(0), salted)

    return _each(one, images, seed)


def defocus_blur(images: UInt8[Tensor, "n c h w"], severity: int, seed: int = 0) -> UInt8[Tensor, "n c h w"]:
    """Blur by a smoothed disk; deterministic."""
    kernel = disk_kernel(*_DISK[severity - 1])
    h, w = images.shape[2:]
    pad = len(kernel) // 2
    # borders are mirrored without the edge pixel, as OpenCV does by default; repeatedly if the image is small
    rows, columns = (_mirror(torch.arange(-pad, side + pad), side) for side in (h, w))
    shape = (h + 2 * pad, w + 2 * pad)
    spectrum = torch.fft.rfft2(kernel, shape)  # the kernel is symmetric: convolution is correlation

    def one_batch(batch: UInt8[Tensor, "b c h w"]) -> UInt8[Tensor, "b c h w"]:
        padded = batch[:, :, rows][:, :, :, columns].to(torch.float32)
        blurred: Tensor = torch.fft.irfft2(torch.fft.rfft2(padded) * spectrum, shape)[..., 2 * pad :, 2 * pad :]
        return blurred.add_(1e-3).clamp_(0, 255).to(torch.uint8)  # rounding down must not darken white

    return torch.cat([one_batch(batch) for batch in torch.split(images, 128)])


def disk_kernel(radius: int, deviation: float) -> Float[Tensor, "k k"]:
    """Return a disk of that radius with its edge smoothed by a small Gaussian."""
    reach, taps = max(radius, 8), 1 if radius <= 8 else 2
    grid = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (grid[:, None] ** 2 + grid**2 <= radius**2).to(torch.float64)
    gauss = torch.exp(-(torch.arange(-taps, taps + 1, dtype=torch.float64) ** 2) / (2 * deviation**2))
    smoothing = torch.outer(gauss, gauss) / gauss.sum() ** 2
    side = len(grid)
    mirrored = _mirror(torch.arange(-taps, side + taps), side)
    smoothed = F.conv2d((disk / disk.sum())[mirrored][:, mirrored][None, None], smoothing[None, None])
    return smoothed[0, 0].to(torch.float32)


def _mirror(index: Tensor, side: int) -> Tensor:
    """Fold indices beyond 0..side-1 back, as often as needed, without repeating the edge."""
    if side == 1:
        return torch.zeros_like(index)
    period = 2 * (side - 1)
    folded = index.remainder(period)
    return torch.minimum(folded, period - folded)


def _each(
    one: Callable[[npt.NDArray[np.uint8], np.random.Generator], npt.NDArray[np.uint8]],
    images: UInt8[Tensor, "n c h w"],
    seed: int,
) -> UInt8[Tensor, "n c h w"]:
    corrupted = [one(image, np.random.default_rng((seed, i))) for i, image in enumerate(images.numpy())]
    return torch.from_numpy(np.stack(corrupted))


CORRUPTIONS = {f.__name__: f for f in (gaussian_noise, impulse_noise, defocus_blur)}
