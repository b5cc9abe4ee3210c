"""What a fitted classifier answers about queries: probabilities, labels, logits and how strange they are."""

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from polyshot.errors import InputError
from polyshot.estimator.covariance import OF_SPARSE_ROWS, KernelLike
from polyshot.estimator.fitted import FittedModel
from polyshot.estimator.inputs import as_array, checked_class_prior, checked_features
from polyshot.estimator.pool import unlabelled_rows
from polyshot.estimator.rows import Rows, as_rows, in_form_of
from polyshot.system.threads import few_threads

Array = NDArray[np.float64]
Answer = TypeVar("Answer")


class Answers:
    """The queries of OneVsEachClassifier; each reads one whole model, though another thread may fit or add."""

    kernel: KernelLike
    unlabeled: Any

    @property
    def classes_(self) -> NDArray[Any]:
        """The class labels, sorted."""
        return self._fitted.examples.classes

    @property
    def log_scale_(self) -> float:
        """The log-scale in use."""
        return self._fitted.log_scale

    @property
    def log_marginal_likelihood_(self) -> float:
        """Estimate of log p(y | X); a lower bound for "variational"."""
        return self._fitted.log_marginal_likelihood

    @property
    def r_hat_(self) -> float | None:
        """Largest split R-hat of the chains; None without chains."""
        return self._fitted.r_hat

    def decision_function(self, X: Any) -> Array:
        """Posterior mean logits.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            For two classes of shape (n_samples,): the second class's logit less the first's.
        """
        logits = self._answer(X, lambda model, queries: model.logits(queries)).numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_log_proba(self, X: Any, *, class_prior: Any = None) -> Array:
        """Logarithms of the class probabilities.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
        class_prior : array-like of shape (n_classes,) or dict of labels, optional
            See `predict_proba`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """

        def log_probs(model: FittedModel, queries: Rows) -> Array:
            logits = model.logits(queries)
            if class_prior is not None:
                examples = model.examples
                wanted = checked_class_prior(examples.classes, class_prior)
                logits += torch.from_numpy(wanted / examples.shots).log()
            return torch.log_softmax(logits, -1).numpy()

        return self._answer(X, log_probs)

    def predict_proba(self, X: Any, *, class_prior: Any = None) -> Array:
        """Class probabilities, in the order of `classes_`.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
        class_prior : array-like of shape (n_classes,) or dict of labels, optional
            How frequent the classes are among the queries, if not as among the examples. By Bayes' rule each
            probability is multiplied by the new frequency divided by that of the examples. The numbers need not sum to
            one. A class of frequency 0 gets probability 0.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self.predict_log_proba(X, class_prior=class_prior))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every row.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """

        def names(model: FittedModel, queries: Rows) -> NDArray[Any]:
            best: NDArray[Any] = model.examples.classes[model.logits(queries).argmax(1).numpy()]
            return best

        return self._answer(X, names)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the rows that have a label.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
        y : array-like or tensor of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        rows, answers = np.flatnonzero(~unlabelled_rows(y, self.unlabeled)), self.predict(X)
        check_consistent_length(answers, y)
        if not len(rows):
            raise InputError("no row of y has a label, so there is no accuracy")
        weights = None if sample_weight is None else as_array("sample_weight", sample_weight)[rows]
        names = as_array("y", y).tolist()
        return float(accuracy_score(np.array([names[i] for i in rows]), answers[rows], sample_weight=weights))

    def latent_mean_and_covariance(self, X: Any) -> tuple[Array, Array]:
        """Mean and covariance of the logits under the posterior.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)

        Returns
        -------
        mean : ndarray of shape (n_samples, n_classes)
        covariance : ndarray of shape (n_samples, n_classes, n_classes)
        """

        def moments(model: FittedModel, queries: Rows) -> tuple[Array, Array]:
            mean = model.logits(queries)
            return mean.numpy(), model.logit_covariance(queries, mean).numpy()

        return self._answer(X, moments, refits=True)

    def outlier_score(self, X: Any) -> Array:
        """How likely a row is outside all classes: larger is stranger.

        The score is the logit of one more class without an example, less the largest logit. With kernel="rbf" all
        logits fade far from the examples, so the distance to the nearest example is added. The model behind it is
        fitted by expectation propagation, whatever `inference` is, when the score is first asked for. Not useful with
        kernel="linear", where logits grow without bound and far points look known.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._answer(X, lambda model, queries: model.outlier_scores(queries), refits=True).numpy()

    def export_onnx(self, path: str | Path) -> None:
        """Write the classifier as an ONNX graph, to answer where there is no Python; needs polyshot[onnx].

        The graph takes float32 rows "X" [n, d] and returns "logits" and "probabilities" [n, c], in the order of
        `classes_` (also in the file's metadata), and "outlier_score" [n]. Unlike Python it does not refuse NaN.

        Parameters
        ----------
        path : str or Path
        """
        from polyshot.estimator.onnx_graph import export

        check_is_fitted(self)
        model = self._fitted
        with few_threads(len(model.weights) ** 3):
            export(model, Path(path))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = isinstance(self.kernel, str) and self.kernel in ("auto", *OF_SPARSE_ROWS)
        return tags

    @property
    def _fitted(self) -> FittedModel:
        try:
            return self.__dict__["fitted_"]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet; call fit first") from None

    def _answer(self, X: Any, ask: Callable[[FittedModel, Rows], Answer], refits: bool = False) -> Answer:
        """What `ask` says about the queries; model and queries are of one moment, though another thread may fit.

        `refits` says that it may also factorise the covariance of the examples.
        """
        check_is_fitted(self)
        now = copy(self)
        model = now._fitted
        queries, n = in_form_of(model.examples.X, checked_features(now, X)), len(model.examples.labels)
        with few_threads(max(queries.size * n, refits * n**3)):
            return ask(model, as_rows(queries))
