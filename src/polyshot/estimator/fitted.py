"""What a fit produces, as one immutable object: a reader in another thread sees a whole model, old or new."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.covariance import Covariance, KernelLike
from polyshot.estimator.examples import Examples
from polyshot.estimator.hyperparameters import LEARNED, WITHOUT_SCATTER, by_content, choose_log_scale
from polyshot.estimator.inference import Inferred, Start, weights_with_none
from polyshot.estimator.pool import PooledCovariance, covariance_of
from polyshot.estimator.pool_models import Companion, companions
from polyshot.estimator.projection import Projection, scaled, with_constant
from polyshot.estimator.rows import Features, Rows, as_rows
from polyshot.gp import FactoredKernel, KernelMatrix, Queries, SiteMixture, check_finite_tensor, grown_sites

CHUNK_NUMBERS = 2**22
NEAREST = 16.0  # prior standard deviations; docs/estimator-choices.md
_TOO_LARGE = "X has rows too large for the kernel: their posterior mean"
Infer = Callable[[KernelMatrix, Any, int, Start | None, Float[Tensor, "n"] | None], Inferred]


@dataclass(frozen=True)
class FittedModel:
    """Examples, covariance, scale and posterior.

    With a projection all is computed by features, and `weights` has one row per feature; otherwise one per example.
    n_chosen and n_classes_chosen say from how many examples and classes centre, unit and scale were chosen. `later`
    keeps what is computed when it is first asked for. `companions` are the other models that answer if there is a pool.
    """

    examples: Examples
    covariance: Covariance
    log_scale: float
    posterior: SiteMixture
    weights: Float[Tensor, "k c"]
    log_marginal_likelihood: float
    r_hat: float | None
    n_chosen: int
    n_classes_chosen: int
    projection: Projection | None = None
    companions: tuple[Companion, ...] = ()
    later: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(
        examples: Examples,
        kernel: KernelLike,
        log_scale: float | None,
        infer: Infer,
        pool: NDArray[np.float64],
        by_features: bool = False,
    ) -> "FittedModel":
        """Choose centre, unit and scale (unless log_scale is a number) from the examples, and infer the posterior.

        Rows of `pool` have no label; there may be none.
        """
        examples = examples.ordered(by_content(examples.X))
        n_way, start, weights = len(examples.classes), None, examples.powers
        covariance = covariance_of(kernel, as_rows(examples.X), pool, weights)
        projection = Projection.of(covariance, as_rows(examples.X)) if by_features else None
        K = kernel_matrix(covariance, projection, examples.X)
        scales = () if log_scale is None else (log_scale, log_scale)
        if log_scale is None:
            prior = LEARNED if covariance.is_cosine else WITHOUT_SCATTER
            labels = torch.from_numpy(examples.labels)
            log_scale, near = choose_log_scale(K, labels, n_way, prior, covariance.intercept, weights)
            start = None if near is None else (near.w, near.kappa)
        chosen = len(examples.labels), n_way
        K = scaled(K, log_scale, covariance.intercept)
        model = _conditioned(examples, covariance, projection, log_scale, K, infer, start, chosen)
        return model._with_companions(scales, infer)

    def add(self, grown: Examples, infer: Infer) -> "FittedModel":
        """Condition on further examples, behind those there are, with the centre, unit and scale there are."""
        before, start = self.examples, None
        if self.posterior.tied:
            places = torch.from_numpy(np.searchsorted(grown.classes, before.classes))
            start = grown_sites(self.posterior.sites, torch.from_numpy(grown.labels), len(grown.classes), places)
        chosen = self.n_chosen, self.n_classes_chosen
        model = _conditioned(
            grown, self.covariance, self.projection, self.log_scale, self._grown_kernel(grown.X), infer, start, chosen
        )
        return model._with_companions(tuple(c.log_scale for c in self.companions), infer)

    def logits(self, X: Rows) -> Float[Tensor, "q c"]:
        """Posterior mean logits; with a pool averaged with those of the companions."""
        logits = self._own_share * self._mean(X, self.weights)
        for companion in self.companions:
            logits += companion.share * companion.logits(X)
        check_finite_tensor(_TOO_LARGE, logits)
        return logits

    def contributions(self, X: Rows, places: Int[Tensor, "q"]) -> Float[Tensor, "q n"]:
        """What each example, in the user's order, adds to the logit of the class at places[q]."""
        of_class = self._example_weights().T[places]
        parts = self._own_share * torch.cat([K_star * of_class[rows] for rows, K_star in self._covariances(X)])
        for companion in self.companions:
            parts += companion.share * companion.contributions(X, places)[:, : len(self.examples.labels)]
        check_finite_tensor("X has rows too large for the kernel: their contributions", parts)
        return parts[:, self.examples.rows.argsort()]

    def logit_covariance(self, X: Rows, mean: Float[Tensor, "q c"]) -> Float[Tensor, "q c c"]:
        """Posterior covariance of the logits, whose mean is known."""

        def queries(size: int) -> Iterator[Queries]:
            for rows, inputs in self._inputs(X, size):
                variances = np.exp(self.log_scale) * self.covariance.diagonal(X[rows]) + self.covariance.intercept
                yield Queries(rows, inputs, variances)

        covariance = self.posterior.covariance(mean, queries)
        check_finite_tensor("X has rows too large for the kernel: their posterior covariance", covariance)
        return covariance

    def outlier_scores(self, X: Rows) -> Float[Tensor, "q"]:
        """Logit of one more class without an example, less the largest logit; for the RBF also the distance."""
        logits = self._mean(X, self.weights_with_none(), with_intercept=False)
        score = logits[:, -1] - logits[:, :-1].amax(1)
        if self.covariance.fades:
            nearest = torch.cat([K_star.amax(1) for _, K_star in self._covariances(X)])
            deviation = np.exp(self.log_scale / 2)
            score += NEAREST * (deviation - nearest / deviation)
        return score

    def weights_with_none(self) -> Float[Tensor, "n d"]:
        """Weights of the logits of the classes and one more, computed once; threads that race compute the same."""
        if "weights_with_none" not in self.later:
            K = self.posterior.K
            if isinstance(K, FactoredKernel):
                K = replace(K, phi=K.phi[:, : self._n_features()])
            else:
                K = K - self.covariance.intercept
            self.later["weights_with_none"] = weights_with_none(replace(self.posterior, K=K), self.examples.powers)
        return self.later["weights_with_none"]

    def _grown_kernel(self, X: Features) -> KernelMatrix:
        """The kernel matrix of the examples and of the further rows of X, at the scale there is."""
        K, n = self.posterior.K, len(self.examples.labels)
        more = scaled(kernel_matrix(self.covariance, self.projection, X[n:]), self.log_scale, self.covariance.intercept)
        if isinstance(K, FactoredKernel):
            assert isinstance(more, FactoredKernel)
            return replace(K, phi=torch.cat([K.phi, more.phi]))
        assert not isinstance(more, FactoredKernel)
        across = torch.cat([across for _, across in self._covariances(as_rows(X[n:]))])
        return torch.cat([torch.cat([K, across.mT], 1), torch.cat([across, more], 1)])

    def _example_weights(self) -> Float[Tensor, "n c"]:
        """The weights a of the mean logits K_* a, also for a model that works with features."""
        return self.posterior.example_weights() if self.projection else self.weights

    def _n_features(self) -> int:
        """Features without the one of the intercept."""
        return len(self.weights) - (self.covariance.intercept > 0)

    @property
    def _own_share(self) -> float:
        return self.companions[-1].share if self.companions else 1.0

    def _with_companions(self, log_scales: tuple[float, ...], infer: Infer) -> "FittedModel":
        """This model with its companions, if there is a pool."""
        if not isinstance(self.covariance, PooledCovariance):
            return self
        graph_logits = self._mean(self.covariance.pool, self.weights)
        others = companions(self.covariance, self.examples, graph_logits, log_scales, infer)
        return replace(self, companions=others)

    def _covariances(self, X: Rows) -> Iterator[tuple[slice, Tensor]]:
        """Rows of X and their covariances with the support set, in parts that bound the memory."""
        support, scale = as_rows(self.examples.X), np.exp(self.log_scale)
        for rows in self._parts(X, support.shape[0]):
            yield rows, scale * self.covariance(X[rows], support) + self.covariance.intercept

    def _inputs(self, X: Rows, size: int = 0, *, with_intercept: bool = True) -> Iterator[tuple[slice, Tensor]]:
        """Rows of X and what the weights multiply: covariances or features."""
        intercept = self.covariance.intercept if with_intercept else 0.0
        if self.projection is None:
            support, scale = as_rows(self.examples.X), np.exp(self.log_scale)
            for rows in self._parts(X, support.shape[0] + size):
                yield rows, scale * self.covariance(X[rows], support) + intercept
        else:
            for rows in self._parts(X, len(self.projection.landmarks) + len(self.weights) + size):
                yield rows, with_constant(np.exp(self.log_scale / 2) * self.projection(X[rows]), intercept)

    def _parts(self, X: Rows, size: int) -> Iterator[slice]:
        step = max(1, CHUNK_NUMBERS // (X.shape[1] + size))
        return (slice(first, first + step) for first in range(0, X.shape[0], step))

    def _mean(self, X: Rows, weights: Tensor, *, with_intercept: bool = True) -> Tensor:
        parts = self._inputs(X, with_intercept=with_intercept)
        logits = torch.cat([inputs @ weights for _, inputs in parts])
        check_finite_tensor(_TOO_LARGE, logits)
        return logits


def kernel_matrix(covariance: Covariance, projection: Projection | None, X: Features) -> KernelMatrix:
    """Covariances of the examples at scale one without the intercept, symmetric to the bit; or their features."""
    x = as_rows(X)
    if projection is not None:
        assert isinstance(x, Tensor)
        return FactoredKernel(projection(x), each_pair=False)
    K = covariance(x, x)
    return (K + K.mT) / 2


def _conditioned(
    examples: Examples,
    covariance: Covariance,
    projection: Projection | None,
    log_scale: float,
    K: KernelMatrix,
    infer: Infer,
    start: Start | None,
    chosen: tuple[int, int],
) -> FittedModel:
    if not bool(torch.isfinite(K.phi if isinstance(K, FactoredKernel) else K).all()):
        raise InputError("the kernel matrix of X holds NaN or infinity; rescale the features or lower log_scale")
    inferred = infer(K, torch.from_numpy(examples.labels), len(examples.classes), start, examples.powers)
    return FittedModel(
        examples,
        covariance,
        log_scale,
        inferred.posterior,
        inferred.weights,
        inferred.log_evidence,
        inferred.r_hat,
        *chosen,
        projection,
    )
