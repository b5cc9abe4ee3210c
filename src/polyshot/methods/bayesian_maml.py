"""Bayesian MAML: Yoon et al., "Bayesian Model-Agnostic Meta-Learning", NeurIPS 2018; as in the paper, last layer only.

Each particle is a last layer on shared features. Stein variational gradient descent moves the particles from a learned
start towards the posterior given the support set. `bayesian-maml` minimises minus the log of the queries' likelihood
averaged over the particles. `bayesian-maml-chaser` minimises the distance from these particles, the "chaser", to the
"leader": particles that continued with the queries' labels as well. The start is drawn from a Gaussian with learned
scales, the same for all classes. (A learned point that all classes share would cancel in the softmax and leave all
particles the same.)
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import nll_loss, one_hot, pad

from polyshot.errors import InputError
from polyshot.methods.backbones import Init
from polyshot.methods.base import FewShotMethod, QueryFunction, n_features
from polyshot.methods.inner_loop import average, ranks_of_appearance
from polyshot.methods.svgd import stein_direction, stein_direction_by_distance
from polyshot.task import Episode, LabelledSet, Prediction, Space

Particles = Float[Tensor, "m c d1"]


class BayesianMAML(FewShotMethod):
    """Stein variational gradient descent on the last layer, trained by the queries' likelihood.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    n_particles : int
        Sampled last layers, at least 2.
    n_steps : int
        Steps on the support set.
    inner_rate : float
        Step size.
    likelihood : {"sum", "mean"}
        The support set's log-likelihood: summed over the examples, or divided by their number.
    head : {"gaussian", "per-class"}
        Where particles start: at draws from a Gaussian with learned scales, or at learned weights per class as in the
        paper's public code.
    n_way : int
        The number of classes of head="per-class".
    svgd_kernel : {"square", "distance"}
        SVGD's kernel: of squared distances, or the one of the paper's public code (`stein_direction_by_distance`).
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "Bayesian MAML"
    citation = 'Yoon, Kim, Dia, Kim, Bengio & Ahn, "Bayesian Model-Agnostic Meta-Learning", NeurIPS 2018'
    paper_options: ClassVar[Mapping[str, Any]] = {
        "n_steps": 1,
        "inner_rate": 0.01,
        "head": "per-class",
        "svgd_kernel": "distance",
        "init": "he-fan-out",
    }

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        n_particles: int = 20,
        n_steps: int = 5,
        inner_rate: float = 0.003,
        likelihood: Literal["sum", "mean"] = "sum",
        head: Literal["gaussian", "per-class"] = "gaussian",
        n_way: int = 5,
        svgd_kernel: Literal["square", "distance"] = "square",
        init: Init = "torch",
    ) -> None:
        super().__init__(space, backbone, init)
        self.check_positive(n_steps=n_steps, inner_rate=inner_rate, n_way=n_way)
        self.check_choices(likelihood=likelihood, head=head, svgd_kernel=svgd_kernel)
        if n_particles < 2:
            raise InputError(f"{self.title} needs at least 2 particles, not {n_particles}; set n_particles=2 or more")
        self.n_particles = n_particles
        self.n_steps = self.test_steps = n_steps
        self.inner_rate = inner_rate
        self.likelihood = likelihood
        self.direction = stein_direction if svgd_kernel == "square" else stein_direction_by_distance
        d = n_features(self.backbone, space)
        self.log_scale = self.theta = None
        if head == "gaussian":
            self.log_scale = nn.Parameter(torch.full((d + 1,), -0.5 * math.log(d)))
        else:  # Xavier's scale, and biases of zero
            weights = math.sqrt(2 / (d + n_way)) * torch.randn(n_particles, n_way, d)
            self.theta = nn.Parameter(pad(weights, (0, 1)))

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Minus the log of the queries' likelihood, averaged over the particles after their steps."""
        x, y, n_support = self._features(episode)
        theta = self._start(episode.n_way, rng)
        theta = self._move(theta, x[:n_support], y[:n_support], self.n_steps, self.inner_rate)
        return nll_loss(average(logits(theta, x[n_support:])).log_probs, y[n_support:])

    def condition(self, support: LabelledSet, n_way: int, rng: np.random.Generator) -> QueryFunction:
        """Keep the particles after their steps."""
        ranks = self._ranks(support.y, n_way)
        x = _with_one(self.backbone(support.x))
        theta = self._move(self._start(n_way, rng), x, ranks[support.y], self.test_steps, self.inner_rate)[:, ranks]

        def query(x: Tensor) -> Prediction:
            return average(logits(theta, _with_one(self.backbone(x))))

        return query

    def _features(self, episode: Episode) -> tuple[Float[Tensor, "n d1"], Int[Tensor, "n"], int]:
        support, query, n_way = episode
        ranks = self._ranks(support.y, n_way)
        x = _with_one(self.backbone(torch.cat([support.x, query.x])))
        return x, ranks[torch.cat([support.y, query.y])], len(support.y)

    def _ranks(self, y: Int[Tensor, "n"], n_way: int) -> Int[Tensor, "c"]:
        """Which start each class gets: by first appearance, or by the class's own number if each has its own start."""
        return ranks_of_appearance(y, n_way) if self.theta is None else torch.arange(n_way, device=y.device)

    def _start(self, n_way: int, rng: np.random.Generator) -> Particles:
        if self.theta is not None:
            if n_way != self.theta.shape[1]:
                raise InputError(
                    f"{self.title} with head=per-class was built for n_way={self.theta.shape[1]}, not {n_way}; train "
                    f"it with n_way={n_way}, or with head=gaussian, which takes any number of ways"
                )
            return self.theta
        assert self.log_scale is not None
        noise = rng.standard_normal((self.n_particles, n_way, len(self.log_scale)))
        return self.log_scale.exp() * torch.from_numpy(noise).to(self.log_scale)

    def _move(
        self, theta: Particles, x: Float[Tensor, "n d1"], y: Int[Tensor, "n"], n_steps: int, rate: float
    ) -> Particles:
        for _ in range(n_steps):
            gradients = log_posterior_gradient(theta, x, y, len(y) if self.likelihood == "mean" else 1)
            theta = theta + rate * self.direction(theta.flatten(1), gradients.flatten(1)).view_as(theta)
        return theta


class ChaserBayesianMAML(BayesianMAML):
    """Bayesian MAML trained to come close to the posterior that also knows the queries' labels.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    n_particles : int
        Sampled last layers, at least 2.
    n_steps : int
        Steps of the chaser on the support set in training.
    n_leader_steps : int
        Further steps of the leader on support and query together.
    test_steps : int
        Steps on the support set in prediction.
    inner_rate : float
        Step size of the chaser and of prediction.
    leader_rate : float
        Step size of the leader.
    likelihood : {"sum", "mean"}
        The log-likelihood in each step: summed over the examples, or divided by their number.
    distance : {"relative", "square"}
        The loss: the squared distance from chaser to leader, divided by how far the leader moved or not.
    head : {"gaussian", "per-class"}
        Where particles start: at draws from a Gaussian with learned scales, or at learned weights per class as in the
        paper's public code.
    n_way : int
        The number of classes of head="per-class".
    svgd_kernel : {"square", "distance"}
        SVGD's kernel: of squared distances, or the one of the paper's public code (`stein_direction_by_distance`).
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "Bayesian MAML (Chaser)"
    paper_options: ClassVar[Mapping[str, Any]] = {**BayesianMAML.paper_options, "distance": "square"}

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        n_particles: int = 20,
        n_steps: int = 5,
        n_leader_steps: int = 1,
        test_steps: int = 5,
        inner_rate: float = 0.003,
        leader_rate: float = 0.005,
        likelihood: Literal["sum", "mean"] = "sum",
        distance: Literal["relative", "square"] = "relative",
        head: Literal["gaussian", "per-class"] = "gaussian",
        n_way: int = 5,
        svgd_kernel: Literal["square", "distance"] = "square",
        init: Init = "torch",
    ) -> None:
        super().__init__(
            space,
            backbone,
            n_particles=n_particles,
            n_steps=n_steps,
            inner_rate=inner_rate,
            likelihood=likelihood,
            head=head,
            n_way=n_way,
            svgd_kernel=svgd_kernel,
            init=init,
        )
        self.check_positive(n_leader_steps=n_leader_steps, test_steps=test_steps, leader_rate=leader_rate)
        self.check_choices(distance=distance)
        self.n_leader_steps = n_leader_steps
        self.test_steps = test_steps
        self.leader_rate = leader_rate
        self.distance = distance

    def loss(self, episode: Episode, rng: np.random.Generator) -> Tensor:
        """Squared distance between chaser and leader, divided by how far the leader moved if `distance="relative"`.

        The leader is a fixed target: the network learns only through the chaser's steps, which are sums of support
        features. The plain distance grows with the features, so that training pursues a target that it moves itself.
        """
        x, y, n_support = self._features(episode)
        theta = self._start(episode.n_way, rng)
        chaser = self._move(theta, x[:n_support], y[:n_support], self.n_steps, self.inner_rate)
        with torch.no_grad():
            leader = self._move(chaser, x, y, self.n_leader_steps, self.leader_rate)
        square = (chaser - leader).square().sum()
        return square / (leader - theta.detach()).square().sum() if self.distance == "relative" else square


def logits(theta: Particles, x: Float[Tensor, "n d1"]) -> Float[Tensor, "m n c"]:
    """The logits of each particle."""
    return (theta @ x.mT).mT  # one matrix product for all particles


def log_posterior_gradient(
    theta: Particles, x: Float[Tensor, "n d1"], y: Int[Tensor, "n"], divisor: int = 1
) -> Particles:
    """The gradient of the softmax log-likelihood / divisor + log N(theta; 0, 1), in closed form."""
    residuals = one_hot(y, theta.shape[1]) - logits(theta, x).softmax(-1)
    return residuals.mT @ x / divisor - theta


def _with_one(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d1"]:
    """The features with a constant 1 appended, whose weight is the bias."""
    return pad(features, (0, 1), value=1.0)
