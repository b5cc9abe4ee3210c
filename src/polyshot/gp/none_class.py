"""One more class without an example, to recognise queries that belong to none of the others."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp.inference.mixture import grown_sites
from polyshot.gp.inference.tied_posterior import KernelMatrix, TiedPropagation
from polyshot.gp.inference.tied_propagation import fit_tied_propagation
from polyshot.gp.models.posterior import Sites


@torch.no_grad()
def fit_with_none(
    K: KernelMatrix, y: Int[Tensor, "n"], sites: Sites, example_weights: Float[Tensor, "n"] | None = None
) -> tuple[TiedPropagation, Float[Tensor, "k d"]]:
    """Expectation propagation with one more class: how it ended, and the weights of the C + 1 mean logits.

    They are weights of the examples or, if K is a FactoredKernel, of the features.

    Every example is compared with the extra class, which comes last, so that class is improbable near the support set
    and open far away. The sweeps start from the `sites` of a posterior of the C classes.
    """
    n_way = sites.omega.shape[-1]
    start = grown_sites(sites, y, n_way + 1, torch.arange(n_way))
    fit, conditional = fit_tied_propagation(
        K, y, n_way + 1, tolerance=1e-2, start=start, example_weights=example_weights
    )
    return fit, conditional.a
