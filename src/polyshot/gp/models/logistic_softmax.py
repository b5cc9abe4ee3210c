"""GP classification with the logistic-softmax likelihood by three augmentations.

Galy-Fajou, Wenzel, Donner & Opper (2020), "Multi-Class Gaussian Process Classification Made Conjugate". With
sigmoid(f_y) / sum_c sigmoid(f_c), they are: a Gamma variable lambda for the sum, Poisson counts n_c for
exp(lambda sigmoid(-f_c)), and Pólya-Gamma variables for the remaining sigmoids. Given f the three can be drawn jointly
(lambda first, with the others integrated out), so that a Gibbs step has only two blocks. Given them, the classes are
independent Gaussians with sites omega_c ~ PG([y = c] + n_c, f_c) and kappa_c = ([y = c] - n_c) / 2.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from polyshot.gp.arrays import as_tensor
from polyshot.gp.likelihoods import LogisticSoftmax
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.posterior import Conditional, Sites, class_blocks, independent_condition, one_hot
from polyshot.gp.polya_gamma import sample_polya_gamma
from polyshot.gp.shapes import Generators, KernelMatrix, Labels, Mean, SiteArray


class Augmentation(NamedTuple):
    """Gamma, Poisson and Pólya-Gamma variables of each chain."""

    rate: Float[Tensor, "*batch m n"]
    counts: Int[Tensor, "*batch m n c"]
    omega: SiteArray


class LogisticSoftmaxGP(GPModel):
    """GP priors on class logits under the logistic softmax; needs a learned constant mean (Section 5.3)."""

    def __init__(self) -> None:
        self.likelihood: LogisticSoftmax = LogisticSoftmax()

    def augment(self, f: SiteArray, y: Labels, generators: Generators) -> Augmentation:
        """lambda ~ Exp(sum_c sigmoid(f_c)), n_c ~ Poisson(lambda sigmoid(-f_c)), omega_c ~ PG([y = c] + n_c, f_c)."""
        Y = one_hot(y, f.shape[-1])
        shape = (-1, *f.shape[-3:])
        parts = []
        for f_t, Y_t, generator in zip(f.reshape(shape), Y.reshape(-1, *Y.shape[-2:]), generators, strict=True):
            positive, negative = logsigmoid(f_t).exp().cpu().numpy(), logsigmoid(-f_t).exp().cpu().numpy()
            # Logits far below zero for all classes would give unbounded counts; 1e15 of them determine f as well.
            rate = generator.standard_exponential(positive.shape[:-1]) / positive.sum(-1).clip(min=1e-15)
            counts = as_tensor(generator.poisson(rate[..., None] * negative)).to(f.device)
            omega = sample_polya_gamma(counts + Y_t, f_t, generator)
            parts.append(Augmentation(as_tensor(rate).to(f), counts, omega))
        rates, counts_all, omegas = (torch.stack(part) for part in zip(*parts, strict=True))
        return Augmentation(rates.reshape(f.shape[:-1]), counts_all.reshape(f.shape), omegas.reshape(f.shape))

    def draw_sites(self, f: SiteArray, y: Labels, generators: Generators) -> Sites:
        """The sites of one joint draw of the three augmentations."""
        _, counts, omega = self.augment(f, y, generators)
        own_class = one_hot(y, f.shape[-1])[..., None, :, :].to(omega)
        return Sites(omega, (own_class - counts) / 2)

    def condition(self, K: KernelMatrix, y: Labels, sites: Sites, mean: Mean = 0.0) -> Conditional:
        """The Gaussian p(f | X, Y, lambda, n, omega).

        log_marginal is log p(Y, n | X, lambda, omega) without the Poisson weights lambda^n exp(-lambda) / n!, which do
        not depend on f or K.
        """
        own_class = one_hot(y, sites.omega.shape[-1])[..., None, :, :].to(K)
        # kappa = ([y = c] - n) / 2 and b = [y = c] + n
        b = 2 * own_class - 2 * sites.kappa
        R, log_det = class_blocks(K, sites.omega)
        return independent_condition(K, R, log_det, sites, mean, -(b * math.log(2.0)).sum((-2, -1)))
