"""Exact Pólya-Gamma draws for tensors, and the Pólya-Gamma mean.

Polson, Scott & Windle (2013), "Bayesian Inference for Logistic Models Using Pólya-Gamma Latent Variables".
The draws come from the `polyagamma` package. This file sends every (b, c) to the method of that package which is exact
there, and refuses what the package would silently get wrong.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from polyagamma import random_polyagamma
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.arrays import as_tensor
from polyshot.gp.seeds import Seed, as_generator
from polyshot.gp.shapes import AnyFloats

# From |c| = 178 on, the proposal constants of `devroye` overflow; `alternate` is exact for b = 1.
_DEVROYE_LIMIT = 100.0
_SEVERAL, _MANY = 16, 100_000
_NUMBERS_AT_ONCE = 2**22


def sample_polya_gamma(b: int | Int[Tensor, "*shape"], c: AnyFloats, seed: Seed = None) -> AnyFloats:
    """Draw omega ~ PG(b, c) elementwise.

    Parameters
    ----------
    b : int or Tensor
        An integer >= 0, or a tensor of such integers with the shape of `c`. PG(0, c) is the point mass at zero.
    c : Tensor
        Any finite tensor.
    seed : int, Generator or None
        Where the randomness comes from.

    Returns
    -------
    Tensor
        Draws with the shape, dtype and device of `c`.
    """
    tilt = c.detach().cpu().double().numpy()
    if not np.isfinite(tilt).all():
        raise InputError("Pólya-Gamma draws need a finite c, but it contains NaN or infinity")
    if isinstance(b, Tensor) and b.shape != c.shape:
        raise InputError(f"b has shape {tuple(b.shape)}, c has {tuple(c.shape)}; they must be the same")
    rng = as_generator(seed)
    if isinstance(b, int) and b == 1:
        draws = _draw_one(tilt, rng)
    else:
        counts = np.broadcast_to(b.cpu().numpy() if isinstance(b, Tensor) else b, c.shape)
        if counts.size and counts.min() < 0:
            raise InputError(f"b must be an integer >= 0; its smallest entry is {counts.min()}")
        draws = _draw_sums(counts.ravel(), tilt.ravel(), rng).reshape(c.shape)
    return as_tensor(draws).to(c)


def _draw_sums(b: np.ndarray, c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw PG(b, c) for a vector of integers b and a vector of float64 c."""
    # `alternate` is biased for b > 1 and `saddle` for small b. So PG(b, c) is drawn as the sum of b draws of PG(1, c),
    # or by its series.
    out = np.empty(len(c))
    several = (b > _SEVERAL) & (np.abs(c) < _DEVROYE_LIMIT)
    out[several] = _draw_series(b[several], c[several], rng)
    large = (b > _MANY) & ~several
    if large.any():
        # A sum of so many is a gamma variable with the same mean and variance, to less than 1e-4 in distribution.
        mean = polya_gamma_mean(1.0, torch.from_numpy(c[large])).numpy()
        variance = _unit_variance(c[large])
        out[large] = rng.gamma(b[large] * mean**2 / variance, variance / mean)
    # in pieces whose sum of b stays small, to bound the memory
    rows = np.flatnonzero(~large & ~several)
    pieces = np.cumsum(b[rows]) // (100 * _MANY)
    for piece in np.split(rows, np.flatnonzero(np.diff(pieces)) + 1):
        ones = _draw_one(np.repeat(c[piece], b[piece]), rng)
        out[piece] = np.bincount(np.repeat(np.arange(len(piece)), b[piece]), ones, len(piece))
    return out


def _draw_series(b: np.ndarray, c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """PG(b, c) = sum_k Gamma(b, 1) w_k, w_k = 1 / (2 pi^2 (k - 1/2)^2 + c^2 / 2): the definition.

    Enough terms are drawn that less than a thousandth of the variance is left. The rest is drawn as a gamma variable
    with the right mean and variance. The error in distribution is below 1e-7.
    """
    n_terms = _series_terms(np.abs(c).max(initial=0.0))
    k = np.arange(n_terms) + 0.5
    out = np.empty(len(c))
    for rows in np.array_split(np.arange(len(c)), max(1, len(c) * n_terms // _NUMBERS_AT_ONCE)):
        w = 1 / (2 * (np.pi * k) ** 2 + c[rows, None] ** 2 / 2)
        mean = polya_gamma_mean(1.0, torch.from_numpy(c[rows])).numpy() - w.sum(1)
        variance = _unit_variance(c[rows]) - (w**2).sum(1)
        drawn = (rng.standard_gamma(b[rows, None], w.shape) * w).sum(1)
        out[rows] = drawn + rng.gamma(b[rows] * mean**2 / variance, variance / mean)
    return out


def _series_terms(largest: float) -> int:
    """The number of terms of the series to draw for |c| up to `largest`."""
    return 16 + int(1.3 * largest)


def _unit_variance(c: np.ndarray) -> np.ndarray:
    """Variance of PG(1, c), (sinh c - c) / (4 c^3 cosh^2(c / 2)); 1 / 24 at c = 0."""
    small = np.abs(c) < 0.1
    x = np.where(small, 1.0, np.abs(c))
    # numerator and denominator divided by cosh^2(c/2) = e^c (1 + e^-c)^2 / 4, so that nothing overflows
    tail = np.exp(-x)
    variance = (1 - tail**2 - 2 * x * tail) / (2 * x**3 * (1 + tail) ** 2)
    return np.where(small, 1 / 24 - c**2 / 120 + 17 * c**4 / 13440, variance)


def _draw_one(c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw PG(1, c) for a float64 array of any shape."""
    c = np.ascontiguousarray(c)
    out = np.empty_like(c)
    if np.abs(c).max(initial=0.0) < _DEVROYE_LIMIT:
        random_polyagamma(1, c, method="devroye", random_state=rng, out=out, disable_checks=True)
        return out
    large = np.abs(c) >= _DEVROYE_LIMIT
    random_polyagamma(1, np.where(large, 0.0, c), method="devroye", random_state=rng, out=out)
    out[large] = random_polyagamma(1, c[large], method="alternate", random_state=rng)
    return out


def polya_gamma_mean(b: float | Float[Tensor, "*#shape"], c: AnyFloats) -> AnyFloats:
    """Mean of PG(b, c): b / (2 c) tanh(c / 2), or b / 4 at c = 0. Differentiable everywhere.

    Parameters
    ----------
    b : float or Tensor
        Any number >= 0, or a tensor that broadcasts to the shape of `c`.
    c : Tensor
        Any finite tensor.
    """
    small = c.abs() < 1e-2
    safe = torch.where(small, torch.ones_like(c), c)
    # Three terms of the series of tanh(c/2)/(2c); for |c| < 1e-2 the next is below 1e-16 of the first.
    series = 0.25 - c**2 / 48 + c**4 / 480
    return b * torch.where(small, series, torch.tanh(safe / 2) / (2 * safe))
