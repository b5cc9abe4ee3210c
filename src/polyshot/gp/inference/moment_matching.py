"""The moment matching that both kinds of expectation propagation share."""

import torch
from jaxtyping import Bool, Float
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
    log_z : Tensor
        log E[sigmoid(psi)] under the cavity.
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
    return torch.where(there, omega, 0.0), torch.where(there, kappa, 0.0), log_z


def log_scales(
    log_z: AnyFloats, mean: AnyFloats, variance: AnyFloats, omega: Float[Tensor, "*#shape"], kappa: AnyFloats
) -> AnyFloats:
    """The logarithm of the factor that gives each site the integral of its sigmoid against the cavity.

    The sites are those that the posterior was computed with, not the newly matched ones. The log evidence is then
    stationary in the sites at the solution, so that its error is of second order in theirs.
    """
    quadratic = (kappa**2 * variance + 2 * kappa * mean - omega * mean**2) / (2 * (1 + omega * variance))
    return log_z - quadratic + torch.log1p(omega * variance) / 2
