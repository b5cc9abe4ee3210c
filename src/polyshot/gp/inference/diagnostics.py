"""Chain diagnostics: split R-hat and effective sample size (Gelman et al., Bayesian Data Analysis, 3rd ed., 11.4-5)."""

import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.errors import InputError


def split_r_hat(draws: Float[Tensor, "s m *shape"]) -> Float[Tensor, "*shape"]:
    """Potential scale reduction of a scalar; close to one if the chains have mixed.

    Parameters
    ----------
    draws : Tensor [S, M, ...]
        S steps of M chains. Each chain is cut into halves. At least 4 steps are needed.
    """
    halves = _split(draws)
    within, total = _variances(halves)
    ratio = (total / torch.where(within > 0, within, 1.0)).sqrt()
    # Chains that never move: one if all are the same, infinite if they are not.
    stuck = torch.where(total > 0, torch.inf, torch.ones_like(total))
    return torch.where(within > 0, ratio, stuck)


def effective_sample_size(draws: Float[Tensor, "s m *shape"]) -> Float[Tensor, "*shape"]:
    """The number of independent draws that are worth as much, by Geyer's initial monotone sequence.

    Parameters
    ----------
    draws : Tensor [S, M, ...]
        S steps of M chains; at least 4 steps.
    """
    halves = _split(draws)
    n, m = halves.shape[:2]
    within, total = _variances(halves)
    centred = halves - halves.mean(0)
    # Autocovariances of all lags at once by the FFT, padded to avoid wrap-around.
    spectrum = torch.fft.rfft(centred, n=2 * n, dim=0)
    autocovariance = torch.fft.irfft(spectrum.abs() ** 2, n=2 * n, dim=0)[:n].mean(1) / n
    rho = 1 - (within - autocovariance * n / (n - 1)) / torch.where(total > 0, total, 1.0)
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(n // 2, 2, *rho.shape[1:]).sum(1)
    # In theory pairs are positive and decreasing: stop at the first that is not, and do not let them increase.
    positive = (pairs > 0).cumprod(0)
    monotone = pairs.cummin(0).values * positive
    time = (2 * monotone.sum(0) - 1).clamp(min=1 / torch.log10(torch.tensor(float(n * m))))
    return torch.where(total > 0, n * m / time, float(n * m))


def _split(draws: Tensor) -> Tensor:
    """[S, M, ...] to [S // 2, 2 M, ...]."""
    n = draws.shape[0] // 2
    if n < 2:
        raise InputError(f"diagnostics need at least 4 steps per chain, not {draws.shape[0]}; run longer chains")
    return torch.cat([draws[:n], draws[-n:]], 1).double()


def _variances(halves: Tensor) -> tuple[Tensor, Tensor]:
    """Mean within-chain variance, and the overestimate of the posterior variance that R-hat compares it with."""
    n = halves.shape[0]
    within = halves.var(0).mean(0)
    return within, (n - 1) / n * within + halves.mean(0).var(0)
