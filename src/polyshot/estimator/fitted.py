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
from polyshot.estimator.hyperparameters import LEARNED, WITHOUT_SCATTER, by_content, choose_log_scale
from polyshot.estimator.inference import Inferred, Start, weights_with_none
from polyshot.estimator.pool import PooledCovariance, covariance_of
from polyshot.estimator.pool_models import Companion, companions
from polyshot.gp import Queries, SiteMixture, as_tensor, check_finite_tensor, grown_sites

CHUNK_NUMBERS = 2**22
_NEAREST = 16.0  # prior standard deviations; docs/estimator.md
_TOO_LARGE = "X has rows too large for the kernel: their posterior mean"
Infer = Callable[[Float[Tensor, "n n"], Any, int, Start | None], Inferred]


@dataclass(frozen=True)
class Examples:
    """Features X [N, D] and labels [N], which are places in the sorted classes [C].

    rows [N] are the examples' numbers in the order in which the user gave them, from 0 to N - 1.
    """

    X: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: NDArray[Any]
    rows: NDArray[np.int64]

    @staticmethod
    def of(X: NDArray[np.float64], y: NDArray[Any]) -> "Examples":
        """Examples with the labels y that the user gave."""
        classes, labels = np.unique(y, return_inverse=True)
        return Examples(X, labels.astype(np.int64), classes, np.arange(len(X)))

    def grown(self, X: NDArray[np.float64], y: NDArray[Any]) -> "Examples":
        """Further examples behind these; y has the labels of all."""
        grown = Examples.of(np.concatenate([self.X, X]), y)
        return replace(grown, rows=np.r_[self.rows, len(self.X) + np.arange(len(X))])

    def without(self, rows: NDArray[np.int64]) -> "Examples":
        """All but the examples with these numbers; the others are numbered again from 0 in the same order."""
        kept = ~np.isin(self.rows, rows)
        rest = Examples.of(self.X[kept], self.y[kept])
        return replace(rest, rows=self.rows[kept].argsort().argsort())

    @property
    def y(self) -> NDArray[Any]:
        """The labels as the user gave them."""
        names: NDArray[Any] = self.classes[self.labels]
        return names


@dataclass(frozen=True)
class FittedModel:
    """Examples, covariance, scale and posterior.

    n_chosen and n_classes_chosen say from how many examples and classes centre, unit and scale were chosen. `later`
    keeps what is computed when it is first asked for. `companions` are the other models that answer if there is a pool.
    """

    examples: Examples
    covariance: Covariance
    log_scale: float
    posterior: SiteMixture
    weights: Float[Tensor, "n c"]
    log_marginal_likelihood: float
    r_hat: float | None
    n_chosen: int
    n_classes_chosen: int
    companions: tuple[Companion, ...] = ()
    later: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(
        examples: Examples, kernel: KernelLike, log_scale: float | None, infer: Infer, pool: NDArray[np.float64]
    ) -> "FittedModel":
        """Choose centre, unit and scale (unless log_scale is a number) from the examples, and infer the posterior.

        Rows of `pool` have no label; there may be none.
        """
        order = by_content(examples.X)
        examples = replace(examples, X=examples.X[order], labels=examples.labels[order], rows=examples.rows[order])
        n_way, start = len(examples.classes), None
        covariance = covariance_of(kernel, as_tensor(examples.X), pool)
        K = support_covariance(covariance, examples.X)
        scales = () if log_scale is None else (log_scale, log_scale)
        if log_scale is None:
            prior = LEARNED if covariance.is_cosine else WITHOUT_SCATTER
            labels = torch.from_numpy(examples.labels)
            log_scale, near = choose_log_scale(K, labels, n_way, prior, covariance.intercept)
            start = None if near is None else (near.w, near.kappa)
        model = _conditioned(examples, covariance, log_scale, K, infer, start, (len(order), n_way))
        return model._with_companions(scales, infer)

    def add(self, X: NDArray[np.float64], y: NDArray[Any], infer: Infer) -> "FittedModel":
        """Condition on further examples with the centre, unit and scale there are."""
        before, grown = self.examples, self.examples.grown(X, y)
        K, start = support_covariance(self.covariance, grown.X), None
        if self.posterior.tied:
            places = torch.from_numpy(np.searchsorted(grown.classes, before.classes))
            start = grown_sites(self.posterior.sites, torch.from_numpy(grown.labels), len(grown.classes), places)
        chosen = self.n_chosen, self.n_classes_chosen
        model = _conditioned(grown, self.covariance, self.log_scale, K, infer, start, chosen)
        return model._with_companions(tuple(c.log_scale for c in self.companions), infer)

    def logits(self, X: Float[Tensor, "q d"]) -> Float[Tensor, "q c"]:
        """Posterior mean logits; with a pool their part and that of the companions."""
        logits = self._own_share * self._mean(X, self.weights)
        for companion in self.companions:
            logits += companion.share * companion.logits(X)
        check_finite_tensor(_TOO_LARGE, logits)
        return logits

    def contributions(self, X: Float[Tensor, "q d"], places: Int[Tensor, "q"]) -> Float[Tensor, "q n"]:
        """What each example, in the user's order, adds to the logit of the class at places[q]."""
        of_class = self.weights.T[places]
        parts = self._own_share * torch.cat([K_star * of_class[rows] for rows, K_star in self._covariances(X)])
        for companion in self.companions:
            parts += companion.share * companion.contributions(X, places)[:, : len(self.weights)]
        check_finite_tensor("X has rows too large for the kernel: their contributions", parts)
        return parts[:, self.examples.rows.argsort()]

    def logit_covariance(self, X: Float[Tensor, "q d"], mean: Float[Tensor, "q c"]) -> Float[Tensor, "q c c"]:
        """Posterior covariance of the logits, whose mean is known."""

        def queries(size: int) -> Iterator[Queries]:
            for rows, K_star in self._covariances(X, size):
                variances = np.exp(self.log_scale) * self.covariance.diagonal(X[rows]) + self.covariance.intercept
                yield Queries(rows, K_star, variances)

        covariance = self.posterior.covariance(mean, queries)
        check_finite_tensor("X has rows too large for the kernel: their posterior covariance", covariance)
        return covariance

    def outlier_scores(self, X: Float[Tensor, "q d"]) -> Float[Tensor, "q"]:
        """Logit of one more class without an example, less the largest logit; for the RBF also the distance."""
        weights = self.weights_with_none()
        logits = self._mean(X, weights) - self.covariance.intercept * weights.sum(0)
        score = logits[:, -1] - logits[:, :-1].amax(1)
        if self.covariance.fades:
            nearest = torch.cat([K_star.amax(1) for _, K_star in self._covariances(X)])
            deviation = np.exp(self.log_scale / 2)
            score += _NEAREST * (deviation - nearest / deviation)
        return score

    def weights_with_none(self) -> Float[Tensor, "n d"]:
        """Weights of the logits of the classes and one more, computed once; threads that race compute the same."""
        if "weights_with_none" not in self.later:
            self.later["weights_with_none"] = weights_with_none(self.posterior, self.covariance.intercept)
        return self.later["weights_with_none"]

    @property
    def _own_share(self) -> float:
        return self.companions[-1].share if self.companions else 1.0

    def _with_companions(self, log_scales: tuple[float, ...], infer: Infer) -> "FittedModel":
        """This model with its companions, if there is a pool."""
        if not isinstance(self.covariance, PooledCovariance):
            return self
        X, y = as_tensor(self.examples.X), torch.from_numpy(self.examples.labels)
        graph_logits = self._mean(self.covariance.pool, self.weights)
        others = companions(self.covariance, X, y, len(self.examples.classes), graph_logits, log_scales, infer)
        return replace(self, companions=others)

    def _covariances(self, X: Tensor, size: int = 0) -> Iterator[tuple[slice, Tensor]]:
        """Rows of X and their covariances with the support set, in parts that bound the memory."""
        support, scale = as_tensor(self.examples.X), np.exp(self.log_scale)
        step = max(1, CHUNK_NUMBERS // (len(support) + X.shape[1] + size))
        for rows in (slice(first, first + step) for first in range(0, len(X), step)):
            yield rows, scale * self.covariance(X[rows], support) + self.covariance.intercept

    def _mean(self, X: Tensor, weights: Tensor) -> Tensor:
        logits = torch.cat([K_star @ weights for _, K_star in self._covariances(X)])
        check_finite_tensor(_TOO_LARGE, logits)
        return logits


def support_covariance(covariance: Covariance, X: NDArray[np.float64]) -> Float[Tensor, "n n"]:
    """Covariances of the examples at scale one without the intercept, symmetric to the bit."""
    x = as_tensor(X)
    K = covariance(x, x)
    return (K + K.mT) / 2


def _conditioned(
    examples: Examples,
    covariance: Covariance,
    log_scale: float,
    K: Tensor,
    infer: Infer,
    start: Start | None,
    chosen: tuple[int, int],
) -> FittedModel:
    K = np.exp(log_scale) * K + covariance.intercept
    if not bool(torch.isfinite(K).all()):
        raise InputError("the kernel matrix of X holds NaN or infinity; rescale the features or lower log_scale")
    inferred = infer(K, torch.from_numpy(examples.labels), len(examples.classes), start)
    return FittedModel(
        examples,
        covariance,
        log_scale,
        inferred.posterior,
        inferred.weights,
        inferred.log_evidence,
        inferred.r_hat,
        *chosen,
    )
