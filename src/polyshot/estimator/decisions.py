"""Decisions with guarantees: conformal p-values, sets of labels, and "none of these"."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.answers import Answers
from polyshot.estimator.covariance import Covariance
from polyshot.estimator.fitted import FittedModel
from polyshot.estimator.hyperparameters import by_content
from polyshot.estimator.inputs import check_share
from polyshot.estimator.memory import check_joint_matrix
from polyshot.estimator.rows import Rows, as_rows, stacked
from polyshot.gp import conformal_p, misfits, strangeness

Array = NDArray[np.float64]


class Decisions(Answers):
    """The conformal answers of OneVsEachClassifier.

    They are full conformal: each query joins the examples, and a least-squares GP with the same kernel says how badly
    each label fits. Centre and unit are computed from examples and query alike, so the guarantees hold exactly in
    finite samples if examples and query are exchangeable, whatever the model. They need no calibration split. The
    cost is one N x N inverse per query. Each example counts once, whatever its `sample_weight`.
    """

    def predict_p(self, X: Any, *, per_class: bool = False) -> Array:
        """Conformal p-value of every label for every row.

        The true label has a p-value of at most alpha with probability at most alpha, if the examples and the query are
        exchangeable (drawn at random from one population). The smallest possible p-value is 1 / (N + 1).

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
        per_class : bool, default=False
            Compare the query only with examples of the candidate's class (Mondrian). The guarantee then holds within
            each class, also if the number of examples per class was chosen. The smallest p-value is 1 / (n + 1) for a
            class of n examples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """

        def p_values(model: FittedModel, queries: Rows) -> Array:
            y, n_way = torch.from_numpy(model.examples.labels), len(model.examples.classes)
            counted = torch.ones(n_way, len(y) + 1, dtype=torch.bool)
            if per_class:
                counted[:, :-1] = y == torch.arange(n_way)[:, None]
            rows = [conformal_p(misfits(_joint_covariance(model, q), y, n_way), counted) for q in _each(queries)]
            return torch.stack(rows).numpy()

        return self._answer(X, p_values, refits=True)

    def predict_set(self, X: Any, confidence_level: Any = 0.9, *, per_class: bool = False) -> NDArray[np.bool_]:
        """Sets of labels that contain the true one with the probability asked for.

        A label is in the set if its p-value is above 1 - confidence_level. Sets can be empty. With too few examples for
        the level (fewer than 1 / (1 - confidence_level) - 1, per class if `per_class`) no label can be excluded, and
        the set has all of them.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
        confidence_level : float, default=0.9
            Between 0 and 1.
        per_class : bool, default=False
            Guarantee the level within each class, see `predict_p`.

        Returns
        -------
        ndarray of bool, shape (n_samples, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from polyshot import OneVsEachClassifier
        >>> X = np.arange(24.0)[:, None]
        >>> model = OneVsEachClassifier().fit(X, np.repeat(["low", "high"], 12))
        >>> model.classes_.tolist(), model.predict_set([[4.5], [20.5]]).tolist()
        (['high', 'low'], [[False, True], [True, False]])
        """
        check_share("confidence_level", confidence_level)
        excluded = 1 - confidence_level + 1e-12  # 1 - 0.8 is a little less than the p-value 1/5, which is excluded
        sets: NDArray[np.bool_] = self.predict_p(X, per_class=per_class) > excluded
        return sets

    def outlier_p_value(self, X: Any) -> Array:
        """p-values for "comes from the same population as the examples"; small means outside all classes.

        If the query is exchangeable with the examples, its p-value is at most alpha with probability at most alpha. So
        `outlier_p_value(X) < 0.05` has a false-alarm rate of at most 5 %. It needs 20 examples to raise any alarm at
        that level, because the smallest p-value is 1 / (N + 1). The score is the distance to the three nearest others.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """

        def p_values(model: FittedModel, queries: Rows) -> Array:
            return torch.stack([conformal_p(strangeness(_joint_covariance(model, q))) for q in _each(queries)]).numpy()

        return self._answer(X, p_values, refits=True)

    def decide(
        self,
        X: Any,
        confidence_level: Any = 0.9,
        false_alarm_rate: Any = 0.05,
        *,
        asking_cost: Any = None,
        none: Any = "none",
        ask: Any = "ask",
    ) -> NDArray[np.object_]:
        """A label, "none" or "ask" for every row.

        "none" if `outlier_p_value` is below the false-alarm rate; otherwise the label, if exactly one is in the set
        of `predict_set`; otherwise "ask", for a person to decide. With `asking_cost` the probabilities take the place
        of the sets: the most probable label, if asking costs more than that label is expected to.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
        confidence_level : float, default=0.9
            Level of the sets.
        false_alarm_rate : float, default=0.05
            Largest share of known queries that are called "none".
        asking_cost : float, optional
            What asking a person costs if a wrong label costs 1. Then `confidence_level` is not used.
        none, ask : default="none", "ask"
            What to return for queries outside all classes, and for undecided ones.

        Returns
        -------
        ndarray of object, shape (n_samples,)
        """
        check_share("false_alarm_rate", false_alarm_rate)
        classes = self.classes_.tolist()
        for answer in (none, ask):
            if answer in classes:
                raise InputError(f"{answer!r} is also a class; choose other words for `none` and `ask`")
        if asking_cost is None:
            sets = self.predict_set(X, confidence_level)
        else:
            check_share("asking_cost", asking_cost)
            p = self.predict_proba(X)
            sets = (p == p.max(1, keepdims=True)) & (1 - p < asking_cost)
        outside = self.outlier_p_value(X) < false_alarm_rate
        answers = [classes[row.argmax()] if row.sum() == 1 else ask for row in sets]
        decisions = np.empty(len(sets), dtype=object)
        decisions[:] = [none if out else answer for out, answer in zip(outside, answers, strict=True)]
        return decisions


def _each(queries: Rows) -> Iterator[Any]:
    """The queries one by one, as features of one row."""
    return (queries[i : i + 1] if issparse(queries) else queries[i : i + 1].numpy() for i in range(queries.shape[0]))


def _joint_covariance(model: FittedModel, query: Any) -> Tensor:
    """Covariances of the examples and the query, last, with centre and unit computed from all of them alike."""
    check_joint_matrix(len(model.examples.labels))
    X = stacked(model.examples.X, query)
    covariance = Covariance.of(model.covariance.kernel, as_rows(X[by_content(X)]))
    rows = as_rows(X)
    K = covariance(rows, rows) + covariance.intercept
    return (K + K.mT) / 2
