"""What the GP methods share: a kernel on the backbone's features, the objectives of Section 4.5, prediction.

Subclasses choose the GP model of `polyshot.gp` and how to reach its posterior.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from polyshot.gp import (
    KERNELS,
    Average,
    ConstantMean,
    GPModel,
    Kernel,
    Rule,
    Seed,
    Sites,
    SiteSource,
    Slope,
    Start,
    as_generator,
    gibbs,
    marginal_likelihood,
    predict,
    predictive_likelihood,
)
from polyshot.methods.backbones import Init
from polyshot.methods.base import (
    FewShotMethod,
    QueryFunction,
    averaged_statistics,
    check_support,
    evaluating,
    n_features,
)
from polyshot.task import Episode, LabelledSet, Prediction, Space

Objective = Literal["ml", "pl"]
OutlierScore: TypeAlias = Callable[[Tensor], Tensor]


class GPMethod(FewShotMethod):
    """A GP classifier on the backbone's features; episodes of one shape are computed together.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    kernel : Kernel
        The covariance of a class's logits, on the features.
    objective : {"ml", "pl"}
        What training maximises, per example: the marginal likelihood of support and query together, or the predictive
        likelihood of the queries given the support set.
    rule : {"sigmoid", "log-sigmoid", "monte-carlo"}
        How the Gaussian of a query's logits becomes class probabilities (`polyshot.gp.class_log_probs`).
    n_chains, n_steps : int
        Gibbs chains and their steps in training.
    kernel_rate : float
        Learning rate of the kernel's own parameters, the prior mean and the noise. These are a few numbers that have to
        move far; at the network's rate that would take thousands of episodes.
    average : {"probability", "log", "score"}
        What is averaged over the chains in the predictive likelihood (`polyshot.gp.predictive_likelihood`). "score"
        also averages and normalises predictions this way; otherwise predictions average probabilities.
    slope : {"exact", "sampled"}
        The derivative of the marginal likelihood's log-determinant (`polyshot.gp.marginal_likelihood`).
    start : str or function
        Where the chains of the marginal likelihood start (`polyshot.gp.gibbs`). Their few steps do not forget it.
    sites : {"chains", "propagation"}
        Where the objective's sites come from: the last step of Gibbs chains, or expectation propagation.
    mean : ConstantMean, optional
        A learned prior mean. By default zero.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title_options = ("kernel", "objective")

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None,
        kernel: Kernel,
        *,
        objective: Objective,
        rule: Rule,
        n_chains: int = 1,
        n_steps: int = 1,
        kernel_rate: float,
        average: Average = "probability",
        slope: Slope = "exact",
        start: Start = "prior",
        sites: SiteSource = "chains",
        mean: ConstantMean | None = None,
        init: Init = "torch",
    ) -> None:
        super().__init__(space, backbone, init)
        self.check_choices(objective=objective, rule=rule, average=average, slope=slope, sites=sites)
        n_features(self.backbone, space)  # refuses a backbone that does not return vectors
        self.kernel = kernel
        self.mean = mean
        self.objective = objective
        self.rule: Rule = rule
        self.n_chains = n_chains
        self.n_steps = n_steps
        self.kernel_rate = kernel_rate
        self.average: Average = average
        self.slope: Slope = slope
        self.start: Start = start
        self.sites: SiteSource = sites

    @classmethod
    def kernel_title(cls, options: Mapping[str, Any]) -> str:
        """The kernel's own title; empty where the kernel is not an option."""
        name: str = cls.full_options(options).get("kernel", "")
        return KERNELS[name].title if name in KERNELS else name

    @classmethod
    def short_title(cls, options: Mapping[str, Any]) -> str:
        """Such as "OVE PG GP + Cosine (PL)"."""
        kernel, objective = cls.kernel_title(options), cls.full_options(options).get("objective", "")
        return cls.title + (f" + {kernel}" if kernel else "") + (f" ({objective.upper()})" if objective else "")

    def model(self) -> GPModel:
        """The GP model with its parameters as learned so far."""
        raise NotImplementedError

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The sites to predict with, given K [*batch, N, N]."""
        raise NotImplementedError

    def last_sites(self, K: Tensor, y: Tensor, n_way: int, n_steps: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The last step of the chains (Algorithm 1)."""
        return gibbs(
            self.model(),
            K,
            y,
            n_way,
            n_chains=self.n_chains,
            n_steps=n_steps,
            mean=self.prior_mean(),
            latent=False,
            seed=list(rngs),
        ).draws

    def features(self, x: Tensor) -> Tensor:
        """The backbone's vectors in double precision."""
        features: Tensor = self.backbone(x)
        return features.double()

    def prediction_scale(self) -> Tensor | float:
        """The factor on the kernel in prediction."""
        return 1.0

    def prior_mean(self) -> Tensor | float:
        """The prior mean of all logits."""
        return 0.0 if self.mean is None else self.mean()

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Minus the objective per example."""
        return next(self.losses([episode], [rng]))[0]

    def losses(self, episodes: Sequence[Episode], rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        """The same as one by one; computed together if all episodes have the same shape."""
        if len({(len(e.support.y), len(e.query.y), e.n_way) for e in episodes}) > 1:
            yield from super().losses(episodes, rngs)
            return
        n_way, n = episodes[0].n_way, len(episodes[0].support.y)
        x = torch.stack(
            [
                self.features(torch.cat([episodes[k].support.x, episodes[k].query.x]))
                for k in averaged_statistics(self, len(episodes))
            ]
        )
        y = torch.stack([torch.cat([e.support.y, e.query.y]) for e in episodes])
        yield -self.objective_value(x, y, n, n_way, rngs)

    def objective_value(
        self, x: Tensor, y: Tensor, n_support: int, n_way: int, rngs: Sequence[np.random.Generator]
    ) -> Tensor:
        """The objective per example [B], given features and labels of the support set, then the queries."""
        n = n_support
        settings: dict[str, Any] = {
            "n_chains": self.n_chains,
            "n_steps": self.n_steps,
            "mean": self.prior_mean(),
            "sites": self.sites,
            "seed": list(rngs),
        }
        if self.objective == "ml":
            options: dict[str, Any] = {"slope": self.slope, "start": self.start, **settings}
            return marginal_likelihood(self.model(), self.kernel, x, y, n_way, **options) / y.shape[-1]
        task = (x[:, :n], y[:, :n], x[:, n:], y[:, n:], n_way)
        options = {"rule": self.rule, "average": self.average, **settings}
        return predictive_likelihood(self.model(), self.kernel, *task, **options) / (y.shape[-1] - n)

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Keep the posterior's sites; a query costs only its kernel with the support set."""
        x, y = self.features(support.x), support.y
        K = self.prediction_scale() * self.kernel(x)
        sites = self.posterior(K, y, n_way, [rng])
        score = self.outlier_score(x, y, K, sites, n_way)
        seed = int(rng.integers(2**32))
        return lambda query: self._predict(x, y, K, sites, score, self.features(query), [seed])

    def predict_episodes(self, episodes: Sequence[Episode], seeds: Sequence[Seed]) -> list[Prediction]:
        """The same as one by one; computed together if all episodes have the same shape."""
        if len({(e.support.y.shape, e.query.y.shape, e.n_way) for e in episodes}) > 1:
            return super().predict_episodes(episodes, seeds)
        n_way = episodes[0].n_way
        supports = [check_support(episode.support, n_way) for episode in episodes]
        rngs = [as_generator(seed) for seed in seeds]
        with evaluating(self):
            x = torch.stack([self.features(support.x) for support in supports])
            y = torch.stack([support.y for support in supports])
            K = self.prediction_scale() * self.kernel(x)
            sites = self.posterior(K, y, n_way, rngs)
            score = self.outlier_score(x, y, K, sites, n_way)
            query = torch.stack([self.features(e.query.x) for e in episodes])
            all_at_once = self._predict(x, y, K, sites, score, query, [int(rng.integers(2**32)) for rng in rngs])
        return [Prediction._make(None if p is None else p[k] for p in all_at_once) for k in range(len(episodes))]

    def outlier_score(self, x: Tensor, y: Tensor, K: Tensor, sites: Sites, n_way: int) -> OutlierScore | None:
        """A function from the queries' features to `Prediction.outlier`; None for a method without such a score."""
        return None

    def query_covariance(self, query: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The prior covariance of the queries with the support set, and their prior variance."""
        scale = self.prediction_scale()
        return scale * self.kernel(query, x), scale * self.kernel.diagonal(query)

    def _predict(
        self,
        x: Tensor,
        y: Tensor,
        K: Tensor,
        sites: Sites,
        outlier_score: OutlierScore | None,
        query: Tensor,
        seeds: list[int],
    ) -> Prediction:
        mean = self.prior_mean()
        prediction = predict(
            self.model(),
            K,
            y,
            sites,
            *self.query_covariance(query, x),
            mean=mean,
            mean_star=mean,
            rule=self.rule,
            average="score" if self.average == "score" else "probability",
            seed=seeds,
        )
        return prediction if outlier_score is None else prediction._replace(outlier=outlier_score(query))

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """The network at the given rate, all other parameters at `kernel_rate`."""
        network = list(self.backbone.parameters())
        ids = {id(p) for p in network}
        rest = [p for p in self.parameters() if id(p) not in ids]
        groups = [{"params": network, "lr": learning_rate}, {"params": rest, "lr": self.kernel_rate}]
        return [group for group in groups if group["params"]]
