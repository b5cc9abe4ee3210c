"""The moment matching that both kinds of expectation propagation share."""

import torch
from jaxtyping import Bool
from torch import Tensor

from polyshot.gp.shapes import AnyFloats
from polyshot.gp.sigmoid_expectations import log_expected_sigmoid_slopes

SMALLEST_OMEGA = 1e-10


def match_moments(
    mean: AnyFloats, variance: AnyFloats, there: Bool[Tensor, "*shape"], *, tied: bool = False
) -> tuple[AnyFloats, AnyFloats, AnyFloats]:
    """Find the sites that turn N(mean, variance) into a Gaussian with the moments of sigmoid(psi) N(mean, variance).

    Parameters
    ----------
    mean, variance : Tensor [..., C]
        The cavity of each psi: its distribution without its own site.
    there : Tensor of bool [..., C]
        Where there is a comparison. Elsewhere the sites and scales are zero.
    tied : bool
        The sites of an example share the average precision, and kappa matches the mean only.

    Returns
    -------
    omega, kappa : Tensor
        The sites, in the shape of `mean`.
    log_scale : Tensor
        The logarithm of the factor that gives each site the integral of its sigmoid.
    """
    log_z, by_mean, by_variance = log_expected_sigmoid_slopes(mean, variance)
    # -d^2 log Z / d mean^2; a Gaussian average obeys the heat equation, d/dv = d^2/dm^2 / 2
    curvature = (by_mean**2 - 2 * by_variance).clamp(min=SMALLEST_OMEGA)
    shrink = (1 - variance * curvature).clamp(min=1e-4)
    omega = curvature / shrink
    if tied:
        shared = torch.where(there, omega, 0.0).sum(-1, keepdim=True) / there.sum(-1, keepdim=True)
        omega = shared.expand_as(mean)
        kappa = by_mean + omega * (mean + variance * by_mean)
    else:
        kappa = (by_mean + mean * curvature) / shrink
    # log of the site's own integral against the cavity
    log_site = (kappa**2 * variance + 2 * kappa * mean - omega * mean**2) / (2 * (1 + omega * variance)) - torch.log1p(
        omega * variance
    ) / 2
    omega, kappa, log_scale = (torch.where(there, x, 0.0) for x in (omega, kappa, log_z - log_site))
    return omega, kappa, log_scale
