"""CDKT: Ke, Cao, Ling & Zhou, "Revisiting Logistic-Softmax Likelihood in Bayesian Meta-Learning for Few-Shot
Classification", NeurIPS 2023.

A GP under the logistic softmax with a temperature, p(y = c | f) = sigmoid(f_c / t) / sum_c' sigmoid(f_c' / t), and
mean-field inference. With g = f / t it is the ordinary logistic softmax of a GP with kernel k / t^2 and mean mu / t, so
everything below is in terms of g. After the Gamma, Poisson and Pólya-Gamma augmentations, the mean-field posterior is

    q(lambda) = Gamma(alpha, C),    q(m_c) = Poisson(gamma_c),    q(omega_c | m_c) = PG(m_c + y_c, tilt_c),

a Gaussian q(g_c), and one-hot labels y. Its coordinate updates are

    tilt_c = sqrt(E[g_c^2]),        alpha = 1 + sum_c gamma_c,
    gamma_c = exp(psi(alpha) - E[g_c] / 2) / (2 C cosh(tilt_c / 2)).

q(g) is then the Gaussian conditional at the sites omega = E[omega], kappa = (y - gamma) / 2. Training maximises the
evidence lower bound of support and query together ("ml") or the predictive likelihood of the queries ("pl").
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot, softplus

from polyshot.gp import ConstantMean, LogisticSoftmaxGP, Rule, Sites, class_log_probs, make_kernel, polya_gamma_mean
from polyshot.methods.backbones import Init
from polyshot.methods.gaussian_process import GPMethod, Objective
from polyshot.task import Space


class MeanField(NamedTuple):
    """The mean-field posterior: sites of one "chain", and the parameters of q(lambda), q(m) and q(omega)."""

    sites: Sites
    alpha: Float[Tensor, "*batch n"]
    gamma: Float[Tensor, "*batch n c"]
    tilt: Float[Tensor, "*batch n c"]


class CDKT(GPMethod):
    """GP logits under the logistic softmax with a temperature, by mean-field updates.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    objective : {"ml", "pl"}
        What training maximises: the evidence lower bound of the marginal likelihood of support and query together, or
        the predictive likelihood of the queries given the support set.
    kernel : str
        A name in `polyshot.gp.KERNELS`.
    log_scale : float
        Where the kernel's log-scale starts.
    kernel_rate : float
        Learning rate of the kernel's parameters and of a learned mean.
    temperature : float
        Divides the logits; below 1 the prior is more confident.
    mean : float
        The prior mean of the logits. Far below zero the likelihood becomes the softmax.
    learn_mean : bool
        Whether the mean is learned; `mean` is then its start.
    n_steps : int
        Mean-field updates in training.
    test_steps : int
        Mean-field updates in prediction.
    rule : {"sigmoid", "log-sigmoid", "monte-carlo"}
        How the Gaussian of a query's logits becomes class probabilities in prediction. Training uses "log-sigmoid".
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "CDKT"
    citation = (
        'Ke, Cao, Ling & Zhou, "Revisiting Logistic-Softmax Likelihood in Bayesian Meta-Learning for Few-Shot '
        'Classification", NeurIPS 2023'
    )
    paper_options: ClassVar[Mapping[str, Any]] = {"kernel_rate": 1e-4, "rule": "monte-carlo", "init": "he-fan-out"}

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        objective: Objective = "ml",
        kernel: str = "cosine",
        log_scale: float = 0.0,
        kernel_rate: float = 1e-3,
        temperature: float = 1.0,
        mean: float = 0.0,
        learn_mean: bool = False,
        n_steps: int = 2,
        test_steps: int = 30,
        rule: Rule = "log-sigmoid",
        init: Init = "torch",
    ) -> None:
        super().__init__(
            space,
            backbone,
            make_kernel(kernel, log_scale=log_scale),
            objective=objective,
            rule=rule,
            n_steps=n_steps,
            kernel_rate=kernel_rate,
            mean=ConstantMean(mean) if learn_mean else None,
            init=init,
        )
        self.check_positive(temperature=temperature, n_steps=n_steps, test_steps=test_steps)
        self.temperature = temperature
        self.fixed_mean = mean
        self.test_steps = test_steps

    def model(self) -> LogisticSoftmaxGP:
        """The logistic softmax of g = f / temperature."""
        return LogisticSoftmaxGP()

    def prediction_scale(self) -> float:
        """1 / temperature^2, for the kernel of g."""
        return self.temperature**-2

    def prior_mean(self) -> Tensor | float:
        """The prior mean of g."""
        return (self.fixed_mean if self.mean is None else self.mean()) / self.temperature

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The mean-field posterior's sites."""
        return mean_field(K, y, n_way, self.prior_mean(), self.test_steps).sites

    def objective_value(
        self, x: Tensor, y: Tensor, n_support: int, n_way: int, rngs: Sequence[np.random.Generator]
    ) -> Tensor:
        """The objective per example [B]; its gradient is at fixed sites."""
        model, mean = self.model(), self.prior_mean()
        K = self.prediction_scale() * self.kernel(x)
        if self.objective == "ml":
            return evidence_lower_bound(K, y, mean_field(K, y, n_way, mean, self.n_steps), mean) / y.shape[-1]
        n = n_support
        sites = mean_field(K[:, :n, :n], y[:, :n], n_way, mean, self.n_steps).sites
        k_star_star = K.diagonal(dim1=-2, dim2=-1)[:, n:]
        logits = model.query(K[:, :n, :n], y[:, :n], sites, K[:, n:, :n], k_star_star, mean)
        log_probs = class_log_probs(logits, model.likelihood, "log-sigmoid").squeeze(-3)
        return log_probs.gather(-1, y[:, n:, None]).mean((-2, -1))


@torch.no_grad()
def mean_field(
    K: Float[Tensor, "*batch n n"], y: Int[Tensor, "*batch n"], n_way: int, mean: Tensor | float, n_steps: int
) -> MeanField:
    """Coordinate updates from the prior; a step updates tilt, gamma, alpha, the sites and then q(g)."""
    K, model, Y = K.double(), LogisticSoftmaxGP(), one_hot(y, n_way).double()
    variance = K.diagonal(dim1=-2, dim2=-1)
    g, g_variance = torch.as_tensor(mean).to(K).expand(Y.shape), variance[..., None].expand(Y.shape)
    alpha = torch.full_like(variance, 1.5)  # where the updates end for logits of zero
    for step in range(n_steps):
        tilt = (g.square() + g_variance).sqrt()
        log_two_cosh = tilt / 2 + softplus(-tilt)
        gamma = (alpha.digamma()[..., None] - math.log(n_way) - g / 2 - log_two_cosh).exp()
        alpha = 1 + gamma.sum(-1)
        sites = Sites(polya_gamma_mean(Y + gamma, tilt)[..., None, :, :], ((Y - gamma) / 2)[..., None, :, :])
        if step < n_steps - 1:
            logits = model.condition(K, y, sites, mean).query(K, variance, mean)
            g = logits.mean.squeeze(-3)
            g_variance = logits.covariance.diagonal(dim1=-2, dim2=-1).squeeze(-3).clamp(min=0)
    return MeanField(sites, alpha, gamma, tilt)


def evidence_lower_bound(
    K: Float[Tensor, "*batch n n"], y: Int[Tensor, "*batch n"], q: MeanField, mean: Tensor | float
) -> Float[Tensor, "*batch"]:
    """A lower bound of log p(Y | X), differentiable in K and the mean at fixed q(lambda), q(m) and q(omega).

    The expectation over q(g) and its KL divergence are the log-marginal at the sites. What remains is the divergence of
    the Pólya-Gamma variables, (gamma + y) (log cosh(tilt / 2) - tilt / 4 tanh(tilt / 2)), and E[log p(lambda, m)] plus
    the entropies of q(lambda) and q(m).
    """
    n_way = q.gamma.shape[-1]
    b = one_hot(y, n_way) + q.gamma
    log_cosh = q.tilt / 2 + softplus(-q.tilt) - math.log(2)
    divergence = (b * (log_cosh - q.tilt / 4 * torch.tanh(q.tilt / 2))).sum(-1)
    digamma = q.alpha.digamma()
    counts = (q.gamma * (digamma[..., None] - math.log(n_way) + 1 - q.gamma.log())).sum(-1)
    rates = -math.log(n_way) + q.alpha.lgamma() + (1 - q.alpha) * digamma
    marginal = LogisticSoftmaxGP().log_marginal(K, y, q.sites, mean).squeeze(-1)
    return marginal + (counts + rates - divergence).sum(-1)
