"""OneVsEachClassifier: Bayesian few-shot classification with scikit-learn's conventions."""

import warnings
from collections.abc import Iterator
from copy import copy
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.covariance import Covariance, KernelLike
from polyshot.estimator.hyperparameters import LEARNED, WITHOUT_SCATTER, by_content, choose_log_scale
from polyshot.estimator.inference import INFERENCES, check_memory, fit_posterior, fit_with_none
from polyshot.gp import as_tensor, check_finite_tensor, one_hot

Array = NDArray[np.float64]
_CHUNK_NUMBERS = 2**22
_NEAREST = 16.0  # docs/estimator.md


class OneVsEachClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian-process classifier for embeddings with 1 to 50 labels a class; nothing needs tuning.

    Class logits have GP priors under the one-vs-each likelihood (Snell & Zemel, ICLR 2021); probabilities are the
    softmax of the posterior mean logits, and the kernel's scale is chosen by leave-one-out likelihood.

    kernel: "auto" ("cosine" for 100 features and more, "rbf" for fewer), "cosine", "linear", "rbf", "normalized-rbf",
    "dkt-cosine", a polyshot kernel, or a function of two arrays [n, d], [m, d] that returns [n, m].
    log_scale: logarithm of the prior variance that a logit owes to the features, "auto" to choose it.
    inference: "propagation" (deterministic, O(N^3); what "auto" takes), "variational" (deterministic, mean field),
    "gibbs" (exact; `n_chains` chains of at most `n_steps` steps, which end when R-hat is below 1.03, and a
    ConvergenceWarning where it stays above 1.1). random_state: for "gibbs" alone.

    After fit: classes_, log_scale_, log_marginal_likelihood_ (a lower bound if variational), r_hat_ (largest split
    R-hat, None without chains), n_features_in_, feature_names_in_.
    """

    def __init__(
        self,
        kernel: KernelLike = "auto",
        *,
        log_scale: Any = "auto",
        inference: Any = "auto",
        n_chains: Any = 4,
        n_steps: Any = 5000,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.log_scale = log_scale
        self.inference = inference
        self.n_chains = n_chains
        self.n_steps = n_steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "OneVsEachClassifier":
        """Condition on labelled examples X [n, d], y [n]."""
        self._check_parameters()
        X, y = validate_data(self, _array(X), _array(y), dtype=np.float64, ensure_min_samples=2)
        _check_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"{type(self).__name__} needs 2 classes or more; y has 1 class, {self.classes_[0]!r}")
        self._check_memory(len(X), len(self.classes_))
        self.X_fit_, self.labels_ = X, labels.astype(np.int64)
        self._choose_and_condition()
        return self

    def add(self, X: Any, y: Any) -> "OneVsEachClassifier":
        """Take in further labelled examples, also of new classes, without choosing anew what need not be.

        Centre, unit and scale stay as they were chosen until there are twice as many examples or classes; then all
        begins anew, so that many small additions cost little and end where fit would. Expectation propagation goes on
        from the sites there are; the variational posterior and the chains begin anew.
        """
        check_is_fitted(self)
        X, y = validate_data(self, _array(X), _array(y), dtype=np.float64, reset=False)
        _check_targets(y)
        before, n = self.classes_, len(self.X_fit_)
        if _kind(y) != _kind(before):
            raise InputError(f"the labels are {_kind(before)} so far, not {_kind(y)}, as {y[0]!r} is")
        names = np.concatenate([before[self.labels_], y])
        grown = copy(self)  # all or nothing: a failure leaves this one as it was
        grown.classes_, labels = np.unique(names, return_inverse=True)
        self._check_memory(len(names), len(grown.classes_))
        grown.X_fit_, grown.labels_ = np.concatenate([self.X_fit_, X]), labels.astype(np.int64)
        if len(names) >= 2 * self.n_chosen_ or len(grown.classes_) >= 2 * self.n_classes_chosen_:
            grown._choose_and_condition()
        else:
            start = None
            if self.posterior_.tied:
                start = grown._extended_sites(torch.from_numpy(np.searchsorted(grown.classes_, before)), n)
            grown._condition(grown._support_covariance(), start)
        self.__dict__.update(grown.__dict__)
        return self

    def decision_function(self, X: Any) -> Array:
        """Posterior mean logits [n, C]; for two classes [n], the second's less the first's."""
        logits = self._mean_logits(X).numpy()
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the class probabilities [n, C]."""
        return torch.log_softmax(self._mean_logits(X), -1).numpy()

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities [n, C], in the order of classes_."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every row."""
        best = self._mean_logits(X).argmax(1).numpy()
        names: NDArray[Any] = self.classes_[best]
        return names

    def latent_mean_and_covariance(self, X: Any) -> tuple[Array, Array]:
        """Mean [n, C] and covariance [n, C, C] of the logits under the posterior."""
        X = self._queries(X)
        mean = self._logits(X, self.weights_)
        covariance = torch.zeros(*mean.shape, mean.shape[1], dtype=mean.dtype)
        for conditional in self.posterior_.conditionals():
            for rows, K_star in self._query_covariances(X, 2 * conditional.a.numel()):
                k_star_star = np.exp(self.log_scale_) * self.covariance_.diagonal(X[rows]) + self.covariance_.intercept
                logits = conditional.query(K_star, k_star_star)
                spread = logits.mean - mean[rows]  # over the chains
                covariance[rows] += logits.covariance.sum(0) + torch.einsum("mqc,mqd->qcd", spread, spread)
        return mean.numpy(), covariance.div_(len(self.posterior_.sites.omega)).numpy()

    def outlier_score(self, X: Any) -> Array:
        """Larger = more likely none of the classes: logit of one more, without an example, less the largest logit.

        With kernel="rbf" all of these fade far from the examples, and how unlike the nearest one is counts besides.
        By expectation propagation whatever `inference` is. Not with kernel="linear", where logits grow without end and
        far points look known.
        """
        X = self._queries(X)
        weights = self.weights_with_none_
        logits = self._logits(X, weights) - self.covariance_.intercept * weights.sum(0)
        score = logits[:, -1] - logits[:, :-1].amax(1)
        if self.covariance_.kernel == "rbf":
            nearest = torch.cat([K_star.amax(1) for _, K_star in self._query_covariances(X)])
            deviation = np.exp(self.log_scale_ / 2)
            score += _NEAREST * (deviation - nearest / deviation)
        return score.numpy()

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier as one safetensors file with a JSON header: whole, or not at all."""
        from polyshot.estimator.storage import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "OneVsEachClassifier":
        """Read what `save` wrote; nothing is unpickled."""
        from polyshot.estimator.storage import load

        return load(cls, Path(path))

    def _check_parameters(self) -> None:
        for name in ("n_chains", "n_steps"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} is a whole number above zero, not {value!r}")
        if self.inference not in INFERENCES:
            raise InputError(f"unknown inference {self.inference!r}; there are {', '.join(INFERENCES)}")
        check_random_state(self.random_state)
        number = isinstance(self.log_scale, Real) and np.isfinite(float(self.log_scale))
        if self.log_scale != "auto" and not number:
            raise InputError(f'log_scale is a finite number or "auto", not {self.log_scale!r}')

    def _check_memory(self, n: int, n_way: int) -> None:
        check_memory(self.inference, n, n_way, self.n_features_in_, int(self.n_chains), int(self.n_steps))

    def _support_covariance(self) -> Tensor:
        X = as_tensor(self.X_fit_)
        K = self.covariance_(X, X)
        return (K + K.mT) / 2

    def _choose_and_condition(self) -> None:
        """Centre, unit and scale from the examples there are, and the posterior."""
        order = by_content(self.X_fit_)
        self.X_fit_, self.labels_ = self.X_fit_[order], self.labels_[order]
        self.n_chosen_, self.n_classes_chosen_ = len(order), len(self.classes_)
        self.covariance_ = Covariance.of(self.kernel, as_tensor(self.X_fit_))
        K, start = self._support_covariance(), None
        if self.log_scale == "auto":
            prior = LEARNED if self.covariance_.is_cosine else WITHOUT_SCATTER
            labels, intercept = torch.from_numpy(self.labels_), self.covariance_.intercept
            self.log_scale_, near = choose_log_scale(K, labels, len(self.classes_), prior, intercept)
            start = None if near is None else (near.w, near.kappa)
        else:
            self.log_scale_ = float(self.log_scale)
        self._condition(K, start)

    def _condition(self, K: Tensor, start: tuple[Tensor, Tensor] | None = None) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1)) if self.inference == "gibbs" else 0
        self.posterior_, self.log_marginal_likelihood_, self.r_hat_ = fit_posterior(
            self.inference,
            np.exp(self.log_scale_) * K + self.covariance_.intercept,
            torch.from_numpy(self.labels_),
            len(self.classes_),
            n_chains=int(self.n_chains),
            n_steps=int(self.n_steps),
            generator=np.random.default_rng(seed),
            start=start,
        )
        self.weights_ = self.posterior_.weights()
        self.weights_with_none_ = fit_with_none(self.posterior_, len(self.classes_), self.covariance_.intercept)

    def _extended_sites(self, places: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The sites of the first n examples at their classes' new places; elsewhere the example's, or all's, mean."""
        n_way, old = len(self.classes_), self.posterior_.sites
        w, kappa = old.omega[0].amax(-1), old.kappa[0]
        typical = kappa.sum(-1) / (kappa.shape[-1] - 1)
        full = typical[:, None].expand(n, n_way).clone()
        full[:, places] = kappa
        fresh = len(self.labels_) - n
        w = torch.cat([w, w.mean().expand(fresh)])
        full = torch.cat([full, typical.mean().expand(fresh, n_way)])
        return w, torch.where(one_hot(torch.from_numpy(self.labels_), n_way), 0.0, full)

    def _queries(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return torch.tensor(np.ascontiguousarray(validate_data(self, _array(X), dtype=np.float64, reset=False)))

    def _query_covariances(self, X: Tensor, numbers_a_row: int = 0) -> Iterator[tuple[slice, Tensor]]:
        """Rows of X and their covariances with the support, in chunks that bound the memory."""
        support, scale, intercept = as_tensor(self.X_fit_), np.exp(self.log_scale_), self.covariance_.intercept
        size = max(1, _CHUNK_NUMBERS // (len(support) + X.shape[1] + numbers_a_row))
        for rows in (slice(first, first + size) for first in range(0, len(X), size)):
            yield rows, scale * self.covariance_(X[rows], support) + intercept

    def _mean_logits(self, X: Any) -> Tensor:
        return self._logits(self._queries(X), self.weights_)

    def _logits(self, X: Tensor, weights: Tensor) -> Tensor:
        logits = torch.cat([K_star @ weights for _, K_star in self._query_covariances(X)])
        check_finite_tensor("X has rows too large for the kernel: their posterior mean", logits)
        return logits


def _check_targets(y: NDArray[Any]) -> None:
    """Labels, not measurements; that many classes have one example is no reason to warn here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        check_classification_targets(y)


def _kind(labels: NDArray[Any]) -> str:
    return {"b": "booleans", "i": "integers", "u": "integers", "f": "floats"}.get(labels.dtype.kind, "strings")


def _array(x: Any) -> Any:
    """A tensor as the array that scikit-learn's checks understand; everything else as it is."""
    if not isinstance(x, Tensor):
        return x
    x = x.detach().cpu()
    return (x.double() if x.is_floating_point() else x).numpy()
