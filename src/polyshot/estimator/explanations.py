"""What the examples are worth: their part in an answer, labels that may be wrong, and the accuracy to expect."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from sklearn.utils.validation import check_is_fitted

from polyshot.errors import InputError
from polyshot.estimator.answers import Answers
from polyshot.estimator.fitted import FittedModel
from polyshot.estimator.inputs import check_share, checked_places
from polyshot.estimator.rows import Rows
from polyshot.gp import leave_one_out_of_all
from polyshot.system.threads import few_threads

Array = NDArray[np.float64]


class ExpectedAccuracy(NamedTuple):
    """An estimate of the accuracy on new queries, with the limits of an interval."""

    accuracy: float
    low: float
    high: float


class Explanations(Answers):
    """Answers of OneVsEachClassifier about its own examples, in the order in which the user gave them."""

    def explain(self, X: Any, y: Any = None) -> Array:
        """What each example contributes to the logit of the answer.

        The contributions of a row sum to its logit exactly. Positive ones speak for the answer, negative ones against
        it. The logits of a row sum to zero over the classes, so a logit says how far a class is ahead of their mean.
        With a pool (`unlabeled`) the rest of the logit comes from rows of the pool.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Labels whose logits are to be explained. By default those that `predict` answers.

        Returns
        -------
        ndarray of shape (n_samples, n_examples)
            The examples are in the order of `fit` and every `add` since.

        Examples
        --------
        >>> from polyshot import OneVsEachClassifier
        >>> model = OneVsEachClassifier().fit([[0.0], [1.0], [9.0]], ["low", "low", "high"])
        >>> model.explain([[0.9]]).argmax()  # the second example is the nearest
        np.int64(1)
        """

        def contributions(model: FittedModel, queries: Rows) -> Array:
            if y is None:
                places = model.logits(queries).argmax(1)
            else:
                places = torch.from_numpy(checked_places(model.examples.classes, y))
            if len(places) != queries.shape[0]:
                raise InputError(f"y has {len(places):,} labels, but X has {queries.shape[0]:,} rows")
            return model.contributions(queries, places).numpy()

        return self._answer(X, contributions)

    def suspect_labels(self) -> tuple[NDArray[np.int64], Array]:
        """The examples by how improbable their own label is, given all the others; wrong labels come first.

        The probability of each label is computed without the example itself, in closed form (leave-one-out), by
        expectation propagation. An example is left out as a whole, whatever its weight. The only example of a class
        cannot be judged: it comes last, with NaN.

        Returns
        -------
        rows : ndarray of shape (n_examples,)
            Numbers of the examples in the order of `fit` and every `add` since; the most suspicious first.
        probabilities : ndarray of shape (n_examples,)
            Leave-one-out probabilities of their labels, in the same order.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from polyshot import OneVsEachClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> y[7] = 2  # a mistake
        >>> rows, probabilities = OneVsEachClassifier().fit(X, y).suspect_labels()
        >>> rows[0]
        np.int64(7)
        """
        model, log_probs, judged = self._left_out()
        labels, rows = model.examples.labels, model.examples.rows
        own = np.where(judged, np.exp(log_probs[np.arange(len(labels)), labels]), np.nan)
        order = np.lexsort((rows, own))
        return rows[order], own[order]

    def expected_accuracy(self, confidence_level: Any = 0.9) -> ExpectedAccuracy:
        """The accuracy to expect on new queries, from the examples alone.

        Every example is classified by all the others. That is harder than classifying a new query, because the class of
        the left-out example has n - 1 examples and not n. So the estimate counts a miss as 1 - 1/n. The interval makes
        no such assumption at its lower end, where a miss counts in full. At its upper end a miss counts as
        (1 - 1/n)^2, and one miss is forgiven. Its limits are Clopper and Pearson's. An example that is the only one of
        its class says nothing: the interval allows that its class is always right or always wrong. Each example counts
        once, whatever its weight.

        Parameters
        ----------
        confidence_level : float, default=0.9
            How often the interval is to contain the true accuracy, over many tasks. docs/estimator-guarantees.md has
            measurements; there is no proof.

        Returns
        -------
        ExpectedAccuracy
            `accuracy`, `low` and `high`, for queries whose classes are as frequent as those of the examples.
        """
        check_share("confidence_level", confidence_level)
        model, log_probs, judged = self._left_out()
        labels = model.examples.labels
        if not judged.any():
            raise InputError("no class has two examples, so none can be left out; add examples")
        n_shot = np.bincount(labels)[labels][judged]
        missed = log_probs.argmax(1)[judged] != labels[judged]
        discount = 1 - 1 / n_shot
        n, misses, share = len(missed), int(missed.sum()), float(judged.mean())
        tail = (1 - confidence_level) / 2
        most = float(beta.ppf(1 - tail, misses + 1, n - misses)) if misses < n else 1.0
        least = (
            float(beta.ppf(tail, misses - 1, n - misses + 2) * np.mean(discount[missed] ** 2)) if misses > 1 else 0.0
        )
        accuracy = 1 - float(np.mean(missed * discount))
        return ExpectedAccuracy(accuracy, share * (1 - most), 1 - share * least)

    def _left_out(self) -> tuple[FittedModel, Array, NDArray[np.bool_]]:
        """A whole model, the leave-one-out log-probabilities of its examples, and which have others of their class."""
        check_is_fitted(self)
        model = self._fitted
        labels = model.examples.labels
        with few_threads(len(labels) ** 3):
            log_probs = leave_one_out_of_all(model.posterior, model.examples.powers).numpy()
        return model, log_probs, np.bincount(labels)[labels] > 1
