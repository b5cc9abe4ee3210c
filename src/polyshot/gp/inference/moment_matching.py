"""The moment matching of expectation propagation: site by site, or with a precision that an example's sites share."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyshot.gp.arrays import as_array
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.compiled.tied_moments import match_tied_moments
from polyshot.gp.shapes import AnyFloats
from polyshot.gp.sigmoid_expectations import MIXTURE_P, MIXTURE_S, log_expected_sigmoid_slopes

SMALLEST_OMEGA = 1e-10


def match_moments(
    mean: AnyFloats, variance: AnyFloats, there: Bool[Tensor, "*shape"]
) -> tuple[AnyFloats, AnyFloats, AnyFloats]:
    """Find the sites that turn N(mean, variance) into a Gaussian with the moments of sigmoid(psi) N(mean, variance).

    Parameters
    ----------
    mean, variance : Tensor [..., C]
        The cavity of each psi: its distribution without its own site.
    there : Tensor of bool [..., C]
        Where there is a comparison. Elsewhere the sites and scales are zero.

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


class TiedMatch(NamedTuple):
    """The sites that match all cavities, and what there is to know about the old ones.

    Attributes
    ----------
    w, kappa : Tensor
        The new sites: the precision [N] that an example's comparisons share is their average, and kappa [N, C] matches
        the means only.
    improper : Tensor [N]
        Where the old shared precision was too large for a cavity, and a wide one took its place.
    log_scale : float
        The weighted sum of `log_scales` of the old sites.
    residual : float
        How many standard deviations the full change of a copy's site alone would move its psi, at most.
    """

    w: Float[Tensor, "n"]
    kappa: Float[Tensor, "n c"]
    improper: Bool[Tensor, "n"]
    log_scale: float
    residual: float


def match_tied(
    psi: Float[Tensor, "n c"],
    variance: Float[Tensor, "n c"],
    y: Int[Tensor, "n"],
    w: Float[Tensor, "n"],
    kappa: Float[Tensor, "n c"],
    weights: Float[Tensor, "n"],
    *,
    keep_w: bool = False,
) -> TiedMatch:
    """Match moments for sites (w, kappa) under a posterior where psi has this mean and variance.

    An example of weight m counts as m copies, whose sites are the same. w and kappa are those of one copy. The cavity
    leaves out one copy, or the whole example if m < 1. With `keep_w` only kappa is matched, for the w there are.
    """
    n, n_way = psi.shape
    given = [as_array(x) for x in (psi, variance, y, w, kappa, weights.clamp(max=1.0))]
    new_w, new_kappa, improper = np.empty(n), np.empty((n, n_way)), np.empty(n, dtype=np.bool_)
    out = new_w, new_kappa, improper, np.empty(n), np.empty(n)
    constants = keep_w, MIXTURE_P, MIXTURE_S, SMALLEST_OMEGA
    in_threads(lambda first, last: match_tied_moments(*given, *constants, first, last, *out), n, 80 * n_way)
    sites = torch.from_numpy(new_w).to(w.device), torch.from_numpy(new_kappa).to(w.device)
    log_scale = float((as_array(weights) * out[3]).sum())
    return TiedMatch(*sites, torch.from_numpy(improper).to(w.device), log_scale, float(out[4].max()))
