"""ABML: Ravi & Beatson, "Amortized Bayesian Meta-Learning", ICLR 2019.

MAML with a distribution in place of every weight. All tasks share a Gaussian prior over the weights; its mean and
variance are learned. A task's posterior, also Gaussian, starts at the prior and takes a few gradient steps on the
support set's negative log-likelihood plus its KL divergence from the prior (Bayes by backprop). Training minimises the
same for support and query together with respect to the prior, through the steps.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from polyshot.methods.backbones import Conv4, Init, support_rows
from polyshot.methods.base import FewShotMethod, QueryFunction, n_features
from polyshot.methods.gaussian_layers import GaussianLayer, gaussian_kl, normal_like, sampling, with_gaussian_weights
from polyshot.methods.inner_loop import Tensors, average, gradient_step, ranks_of_appearance
from polyshot.task import Episode, LabelledSet, Prediction, Space

_ALPHA, _BETA = 1.0, 0.01  # of the Gamma prior on the weights' precisions


class ABML(FewShotMethod):
    """Gaussian weights; the posterior is reached by gradient steps from a learned prior.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example; its Conv2d and Linear layers are made Gaussian. By default Conv4 with 32 filters
        and the support set's statistics for images.
    n_steps : int
        Gradient steps per task.
    n_samples : int
        Draws per expectation.
    train_samples : int, optional
        Draws per expectation in training. By default `n_samples`.
    inner_rate : float
        Learning rate of the gradient steps.
    inner_kl : float
        Weight of the KL divergence in the gradient steps, relative to the mean cross-entropy.
    outer_kl : float
        Weight of the KL divergence in the training loss, relative to the mean cross-entropy.
    n_tasks : int
        Training episodes in all. The hyper-prior of the prior counts once over all of them.
    start_variance : float
        The prior's variance before training.
    start_head_variance : float
        The same for the last layer, whose prior is the same for all classes.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "ABML"
    citation = 'Ravi & Beatson, "Amortized Bayesian Meta-Learning", ICLR 2019'
    paper_options: ClassVar[Mapping[str, Any]] = {"init": "he-fan-out"}
    embeds_once = False

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        n_steps: int = 4,
        n_samples: int = 5,
        train_samples: int | None = None,
        inner_rate: float = 0.1,
        inner_kl: float = 0.01,
        outer_kl: float = 0.001,
        n_tasks: int = 40_000,
        start_variance: float = 1e-5,
        start_head_variance: float = 1e-3,
        init: Init = "torch",
    ) -> None:
        super().__init__(space, backbone, init)
        self.n_steps = n_steps
        self.n_samples = n_samples
        self.train_samples = n_samples if train_samples is None else train_samples
        self.check_positive(n_steps=n_steps, n_samples=n_samples, inner_rate=inner_rate, n_tasks=n_tasks)
        self.check_positive(train_samples=self.train_samples)
        self.check_positive(start_variance=start_variance, start_head_variance=start_head_variance)
        self.inner_rate = inner_rate
        self.inner_kl = inner_kl
        self.outer_kl = outer_kl
        self.n_tasks = n_tasks
        last = nn.Linear(n_features(self.backbone, space), 1, bias=False)
        self.head = GaussianLayer(last, math.log(start_head_variance))
        self.backbone = with_gaussian_weights(self.backbone, math.log(start_variance))
        paths = [path for path, module in self.named_modules() if isinstance(module, GaussianLayer)]
        self._names = [(f"{path}.layer.weight", f"{path}.log_variance") for path in paths]

    @classmethod
    def default_backbone(cls, space: Space) -> nn.Module:
        """Conv4 with 32 filters and the support set's statistics."""
        return nn.Identity() if space.kind == "embeddings" else Conv4(space.shape[0], width=32, norm="support")

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n c"]:
        """Logits."""
        logits: Tensor = self.head(self.backbone(x))
        return logits

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Mean cross-entropy of support and query, plus the weighted KL divergence and hyper-prior."""
        support, query, n_way = episode
        prior = self._prior(n_way)
        with sampling(self, self._generator(rng)):
            ranks = ranks_of_appearance(support.y, n_way)
            support = LabelledSet(support.x, ranks[support.y])
            posterior = self._descend(prior, support, self.train_samples, second_order=True)
            query = LabelledSet(query.x, ranks[query.y])
            cost = self._cross_entropy(posterior, self.train_samples, support, query)
        return cost + self.outer_kl * (self._kl(posterior, prior) + self._hyper_prior() / self.n_tasks)

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Keep weights drawn from the posterior, the same for all queries, and the support set for its statistics."""
        ranks, generator = ranks_of_appearance(support.y, n_way), self._generator(rng)
        ranked = LabelledSet(support.x, ranks[support.y])
        with torch.enable_grad(), sampling(self, generator):
            posterior = self._descend(self._prior(n_way), ranked, self.n_samples, second_order=False)
        draws = [self._draw(posterior, generator) for _ in range(self.n_samples)]

        def query(x: Tensor) -> Prediction:
            rows = torch.cat([support.x, x])
            with support_rows(self.backbone, len(support.x)):
                logits = [functional_call(self, draw, (rows,))[len(support.x) :] for draw in draws]
            return average(torch.stack(logits)[..., ranks])

        return query

    def _generator(self, rng: np.random.Generator) -> torch.Generator:
        device = self.head.log_variance.device
        return torch.Generator(device).manual_seed(int(rng.integers(2**63)))

    def _prior(self, n_way: int) -> Tensors:
        """Mean and log-variance of each weight, by their names in the method."""
        parameters = dict(self.named_parameters())
        prior = {name: parameters[name] for names in self._names for name in names}
        return prior | {name: prior[name].expand(n_way, -1) for name in ("head.layer.weight", "head.log_variance")}

    def _descend(self, prior: Tensors, support: LabelledSet, n_samples: int, second_order: bool) -> Tensors:
        def objective(posterior: Tensors) -> Tensor:
            return self._cross_entropy(posterior, n_samples, support) + self.inner_kl * self._kl(posterior, prior)

        # The KL's curvature in a mean is inner_kl / prior variance. This rate makes the KL's part of the step
        # implicit, so that it is stable however small the variance is.
        rates: dict[str, float | Tensor] = {v: self.inner_rate for _, v in self._names}
        rates |= {
            m: self.inner_rate / (1 + self.inner_rate * self.inner_kl * (-prior[v]).exp()) for m, v in self._names
        }
        posterior = prior
        for _ in range(self.n_steps):
            posterior = gradient_step(objective, posterior, rates, second_order)
        return posterior

    def _cross_entropy(self, posterior: Tensors, n_samples: int, *sets: LabelledSet) -> Tensor:
        """The mean over n_samples draws per row; the first set is the support set, which gives the statistics."""
        x = torch.cat([part.x.repeat(n_samples, *[1] * (part.x.ndim - 1)) for part in sets])
        y = torch.cat([part.y.repeat(n_samples) for part in sets])
        with support_rows(self.backbone, n_samples * len(sets[0].x)):
            return cross_entropy(functional_call(self, posterior, (x,)), y)

    def _kl(self, posterior: Tensors, prior: Tensors) -> Tensor:
        terms = [gaussian_kl(posterior[m], posterior[v], prior[m], prior[v]) for m, v in self._names]
        return torch.stack(terms).sum()

    def _hyper_prior(self) -> Tensor:
        """-log N(means; 0, 1) - log Gamma(precisions; 1, 0.01), up to constants."""
        parameters = dict(self.named_parameters())
        means = torch.cat([parameters[m].flatten() for m, _ in self._names])
        log_precisions = -torch.cat([parameters[v].flatten() for _, v in self._names])
        return 0.5 * means.square().sum() - ((_ALPHA - 1) * log_precisions - _BETA * log_precisions.exp()).sum()

    def _draw(self, posterior: Tensors, generator: torch.Generator) -> Tensors:
        return {
            m: posterior[m] + (0.5 * posterior[v]).exp() * normal_like(posterior[m], generator) for m, v in self._names
        }
