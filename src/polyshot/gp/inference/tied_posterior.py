"""The sites that tied propagation finds and the posterior they give, whichever form the kernel matrix has."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.gp.inference.feature_propagation import FactoredKernel, FeatureConditional
from polyshot.gp.inference.tied_conditional import TiedConditional
from polyshot.gp.models.posterior import Sites

KernelMatrix = Float[Tensor, "n n"] | FactoredKernel
"""K itself, or the features whose inner products it has."""
TiedPosterior = TiedConditional | FeatureConditional


class TiedPropagation(NamedTuple):
    """The result of expectation propagation with shared precisions.

    Attributes
    ----------
    w : Tensor [N]
        The precision that the sites of each example share.
    kappa : Tensor [N, C]
        Linear coefficients of the sites; zero at the example's own class.
    log_evidence : float
        Approximate log p(Y | X).
    n_sweeps : int
        The number of sweeps.
    converged : bool
        Whether the sweeps converged.
    """

    w: Float[Tensor, "n"]
    kappa: Float[Tensor, "n c"]
    log_evidence: float
    n_sweeps: int
    converged: bool

    @property
    def sites(self) -> Sites:
        """The same as ordinary sites of one chain, for every function that takes those."""
        return Sites(torch.where(self.kappa != 0, self.w[:, None], 0.0)[None], self.kappa[None])


def tied_conditional(
    K: KernelMatrix, y: Tensor, w: Tensor, kappa: Tensor, *, spare: TiedPosterior | None = None
) -> TiedPosterior:
    """The posterior given sites of precision w_i and kappa_ic, by the kernel matrix or by features.

    `spare` is a posterior of the same task that nobody needs any more. Its memory is used again, because new memory
    costs as much time as the algebra in it.
    """
    kind = FeatureConditional if isinstance(K, FactoredKernel) else TiedConditional
    return kind.of(K, y, w, kappa, spare)  # type: ignore[arg-type]  # `spare` is of K's kind
