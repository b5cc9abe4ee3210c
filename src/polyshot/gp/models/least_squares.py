"""The least-squares GP classifier: exact regression on labels +1 and -1 with Gaussian noise.

Rifkin & Klautau (2004), "In Defense of One-Vs-All Classification"; used by Deep Kernel Transfer (Patacchiola et al.
2020). The sites are constant (omega = 1 / s^2, kappa = t / s^2 with targets t), so one Gibbs step is an exact posterior
draw and one chain is enough for prediction.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.gp.likelihoods import Gaussian
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.posterior import Conditional, Sites, class_blocks, independent_condition, one_hot
from polyshot.gp.shapes import Generators, KernelMatrix, Labels, Mean, PerChain, SiteArray


class LeastSquaresGP(GPModel):
    """Exact GP regression on one-vs-rest targets.

    Parameters
    ----------
    noise : float or Tensor
        The noise variance; a tensor can be learned.
    """

    def __init__(self, noise: float | Float[Tensor, ""] = 1.0) -> None:
        self.likelihood: Gaussian = Gaussian(noise)

    def draw_sites(self, f: SiteArray, y: Labels, generators: Generators) -> Sites:
        """The observations, which do not depend on f."""
        return self.sites(y, f.shape[-1], f.shape[-3])

    def sites(self, y: Labels, n_way: int, n_chains: int = 1) -> Sites:
        """Targets +1 for the label's class and -1 for the others, as sites [*batch, M, N, C]."""
        targets = 2 * one_hot(y, n_way).double() - 1
        kappa = (targets / self.likelihood.noise)[..., None, :, :].repeat_interleave(n_chains, -3)
        return Sites(torch.ones_like(kappa) / self.likelihood.noise, kappa)

    def with_gradient(self, sites: Sites, y: Labels) -> Sites:
        """The observations again, as functions of the noise."""
        return self.sites(y, sites.omega.shape[-1], sites.omega.shape[-3])

    def condition(self, K: KernelMatrix, y: Labels, sites: Sites, mean: Mean = 0.0) -> Conditional:
        """The exact posterior; log_marginal is the log marginal likelihood of the targets."""
        noise = torch.as_tensor(self.likelihood.noise, dtype=K.dtype, device=K.device)
        n, n_way = sites.omega.shape[-2:]
        # All classes share one block. N(t | f, s^2) = exp(kappa f - omega f^2 / 2) times the constant.
        R, log_det = class_blocks(K, sites.omega[..., :1])
        constant = -n * n_way / 2 * (torch.log(2 * math.pi * noise) + 1 / noise)
        blocks = R.expand(*R.shape[:-3], n_way, n, n)
        return independent_condition(K, blocks, n_way * log_det, sites, mean, constant.expand(log_det.shape))

    def log_marginal(
        self, K: KernelMatrix, y: Labels, sites: Sites, mean: Mean = 0.0, probes: SiteArray | None = None
    ) -> PerChain:
        """Log marginal likelihood of the targets, differentiable in K, the mean and the noise; always exact."""
        return self.condition(K.double(), y, sites, mean).log_marginal
