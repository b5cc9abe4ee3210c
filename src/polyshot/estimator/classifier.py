"""OneVsEachClassifier: Bayesian few-shot classification with scikit-learn's conventions."""

from copy import copy
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.answers import Answers
from polyshot.estimator.covariance import KernelLike, resolved
from polyshot.estimator.decisions import Decisions
from polyshot.estimator.examples import Examples
from polyshot.estimator.explanations import Explanations
from polyshot.estimator.fitted import FittedModel
from polyshot.estimator.inference import INFERENCES, ChainOptions, Inferred, Start, Weights
from polyshot.estimator.inputs import checked_rows, joined_labels, weighted_rows
from polyshot.estimator.labelling import Labelling
from polyshot.estimator.memory import resources
from polyshot.estimator.pool import check_unlabeled, labelled_and_pool, pool_of, unlabelled_rows
from polyshot.estimator.projection import n_features
from polyshot.gp import KernelMatrix

_LARGEST_LOG_SCALE = 20.0  # exp(20) leaves half of the digits of a double


class OneVsEachClassifier(Labelling, Explanations, Decisions, Answers, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian-process classifier for embeddings with 1 to 50 labels per class; nothing needs tuning.

    Class logits have GP priors under the one-vs-each likelihood (Snell & Zemel, ICLR 2021). Probabilities are the
    softmax of the posterior mean logits. The kernel's scale is chosen by leave-one-out likelihood and a learned prior.

    Parameters
    ----------
    kernel : str, polyshot kernel or callable, default="auto"
        "cosine", "linear", "rbf", "normalized-rbf", "cosine-rbf", "dkt-cosine" or "auto", which is "cosine" for 100
        features and more and "rbf" for fewer. A callable takes two arrays [n, d] and [m, d] and returns their
        covariances [n, m].
    log_scale : float or "auto", default="auto"
        Logarithm of the prior variance of a logit that is due to the features, from -20 to 20. "auto" chooses it.
    inference : {"auto", "propagation", "variational", "gibbs"}, default="auto"
        "propagation" (what "auto" uses) is deterministic expectation propagation in O(N^3) for any number of classes.
        "variational" is the deterministic mean-field posterior. "gibbs" is exact up to Monte Carlo error: its chains
        stop once R-hat is below 1.03, with a ConvergenceWarning if it stays above 1.1.
    n_chains : int, default=4
        Number of chains, for "gibbs" only.
    n_steps : int, default=5000
        Most steps of a chain, for "gibbs" only.
    random_state : int, RandomState instance or None, default=None
        Seed, for "gibbs" only.
    unlabeled : str, number, None or (), default=()
        Rows of y with this value have no label (-1, "", "?", ...; None and NaN stand for every missing value). The
        features of these rows help to place the boundaries between classes, and `score` leaves them out. (): every row
        has a label.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    log_scale_ : float
        The log-scale in use.
    log_marginal_likelihood_ : float
        Estimate of log p(y | X); a lower bound for "variational".
    r_hat_ : float or None
        Largest split R-hat of the chains; None without chains.
    n_features_in_ : int
        Number of features seen by `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features seen by `fit`, if X had string column names.
    metadata_ : dict
        What was saved with the model (`save`); only after `load`.
    fitted_ : FittedModel
        Everything that the fit produced.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from polyshot import OneVsEachClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = OneVsEachClassifier().fit(X[::10], y[::10])
    >>> model.predict(X[[1, 61, 111]])
    array([0, 1, 2])
    >>> round(model.score(X, y), 2)
    0.91
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
        unlabeled: Any = (),
    ) -> None:
        self.kernel = kernel
        self.log_scale = log_scale
        self.inference = inference
        self.n_chains = n_chains
        self.n_steps = n_steps
        self.random_state = random_state
        self.unlabeled = unlabeled

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "OneVsEachClassifier":
        """Condition on labelled examples; a fit that fails leaves the classifier as it was.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
            Embeddings or other features; at least two rows.
        y : array-like or tensor of shape (n_samples,)
            Labels of two classes or more: strings, integers, booleans or whole floats; or the value of `unlabeled`.
        sample_weight : array-like of shape (n_samples,), optional
            Powers of the examples' likelihoods: 2 is the example twice, 0 leaves it out, as if X had no such row.
            "gibbs" needs whole numbers. Rows without a label may have any weight.

        Returns
        -------
        self : OneVsEachClassifier
        """
        self.check_parameters()
        new = copy(self)
        unknown = unlabelled_rows(y, self.unlabeled)
        X, y, pool = labelled_and_pool(new, X, y, self.unlabeled, reset=True)
        examples = Examples.of(*weighted_rows(X, y, sample_weight, unknown))
        if not len(examples.labels):
            raise InputError("every sample_weight is zero, so there is no example; give two classes weights above zero")
        if len(examples.classes) < 2:
            raise InputError(
                f"{type(self).__name__} needs at least 2 classes, but y has 1 class, {examples.classes[0]!r}"
            )
        new.fitted_ = new._fit_from_scratch(examples, pool)
        self.__dict__ = new.__dict__
        return self

    def add(self, X: Any, y: Any, sample_weight: Any = None) -> "OneVsEachClassifier":
        """Condition on further labelled examples, also of new classes, at a lower cost than `fit`.

        Centre, unit and scale stay as they were chosen until there are twice as many examples or classes. Then all is
        chosen from scratch, as `fit` would. So many small additions cost little and end where `fit` would. Expectation
        propagation continues from its sites; the variational posterior and the chains start again. Rows without a label
        (see `unlabeled`) join the pool, and all is chosen from scratch.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
            Features of the new examples.
        y : array-like or tensor of shape (n_samples,)
            Their labels, of the same kind as before (strings, integers, ...).
        sample_weight : array-like of shape (n_samples,), optional
            Their weights, as in `fit`.

        Returns
        -------
        self : OneVsEachClassifier

        Examples
        --------
        >>> from polyshot import OneVsEachClassifier
        >>> model = OneVsEachClassifier().fit([[0.0, 0.0], [1.0, 1.0]], ["no", "yes"])
        >>> model.add([[5.0, 5.0]], ["maybe"]).classes_.tolist()
        ['maybe', 'no', 'yes']
        """
        check_is_fitted(self)
        self.check_parameters()
        new = copy(self)
        model = new._fitted
        label = model.examples.classes[:1].tolist()[0]
        unknown = unlabelled_rows(y, self.unlabeled)
        X, y, pool = labelled_and_pool(new, X, y, self.unlabeled, reset=False, label=label)
        X, y, weights = weighted_rows(X, y, sample_weight, unknown)
        y = joined_labels(model.examples.y, y) if len(y) else model.examples.y
        grown = model.examples.grown(X, y, weights)
        n, n_way = len(y), len(grown.classes)
        if len(pool) or n >= 2 * model.n_chosen or n_way >= 2 * model.n_classes_chosen:
            pool = np.concatenate([pool_of(model.covariance), pool])
            new.fitted_ = new._fit_from_scratch(grown, pool)
        else:
            by_features = len(model.weights) if model.projection else 0
            with resources(self.inference, n, n_way, self.n_features_in_, self._options(), by_features):
                new.fitted_ = model.add(grown, new._infer)
        self.__dict__ = new.__dict__
        return self

    def remove(self, rows: Any) -> "OneVsEachClassifier":
        """Forget some examples; the model is then the one that `fit` on the others gives.

        Classes without an example left disappear. The remaining examples are numbered again from 0, as with
        `numpy.delete`. To correct a label, remove the example and add it with the right label.

        Parameters
        ----------
        rows : int or array-like of int
            Numbers of the examples, in the order of `fit` and every `add` since. Negative ones count from the end.

        Returns
        -------
        self : OneVsEachClassifier

        Examples
        --------
        >>> from polyshot import OneVsEachClassifier
        >>> model = OneVsEachClassifier().fit([[0.0], [1.0], [5.0]], ["no", "yes", "oops"])
        >>> model.remove(2).classes_.tolist()
        ['no', 'yes']
        """
        check_is_fitted(self)
        self.check_parameters()
        examples = self._fitted.examples
        rest = examples.without(checked_rows(rows, len(examples.labels)))
        if len(rest.classes) < 2:
            raise InputError(
                f"removing {np.size(rows):,} of {len(examples.labels):,} examples leaves fewer than 2 classes"
            )
        self.fitted_ = self._fit_from_scratch(rest, pool_of(self._fitted.covariance))
        return self

    def save(self, path: str | Path, *, metadata: Any = None) -> None:
        """Write the fitted classifier as one safetensors file with a JSON header, completely or not at all.

        Parameters
        ----------
        path : str or Path
        metadata : dict, optional
            What to remember with the model, such as which encoder made X; anything that JSON can hold. `load` returns
            it as `metadata_`. By default that of the file from which the classifier was loaded.
        """
        from polyshot.estimator.storage import save

        save(self, Path(path), metadata)

    @classmethod
    def load(cls, path: str | Path) -> "OneVsEachClassifier":
        """Read a classifier that `save` wrote; nothing is unpickled.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        OneVsEachClassifier
        """
        from polyshot.estimator.storage import load

        return load(cls, Path(path))

    def check_parameters(self) -> None:
        """Refuse parameters that no fit could use."""
        for name in ("n_chains", "n_steps"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
        if not isinstance(self.inference, str) or self.inference not in INFERENCES:
            raise InputError(f"unknown inference {self.inference!r}; choose from {', '.join(INFERENCES)}")
        check_random_state(self.random_state)
        check_unlabeled(self.unlabeled)
        number = isinstance(self.log_scale, Real) and abs(self.log_scale) <= _LARGEST_LOG_SCALE  # type: ignore[operator]
        if not number and not (isinstance(self.log_scale, str) and self.log_scale == "auto"):
            huge = isinstance(self.log_scale, int) and abs(self.log_scale) > 10**9  # too long to print
            shown = "a huge integer" if huge else repr(self.log_scale)
            raise InputError(
                f'log_scale must be "auto" or a number from {-_LARGEST_LOG_SCALE:g} to {_LARGEST_LOG_SCALE:g}, '
                f"not {shown}; it is the logarithm of a variance"
            )

    def _options(self) -> ChainOptions:
        return ChainOptions(int(self.n_chains), int(self.n_steps), self.random_state)

    def _infer(self, K: KernelMatrix, y: Tensor, n_way: int, start: Start | None, powers: Weights) -> Inferred:
        return INFERENCES[self.inference].fit(K, y, n_way, start, powers, self._options())

    def _fit_from_scratch(self, examples: Examples, pool: NDArray[np.float64]) -> FittedModel:
        log_scale = None if isinstance(self.log_scale, str) else float(self.log_scale)
        (n, d), n_way = examples.X.shape, len(examples.classes)
        may = INFERENCES[self.inference].by_features and not issparse(examples.X) and not len(pool)
        by_features = n_features(resolved(self.kernel, d, False), n, d, n_way) if may else 0
        with resources(self.inference, n, n_way, d, self._options(), by_features):
            return FittedModel.of(examples, self.kernel, log_scale, self._infer, pool, by_features > 0)
