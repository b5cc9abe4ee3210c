"""Which rows of a pool to label next."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.answers import Answers
from polyshot.estimator.fitted import FittedModel
from polyshot.estimator.hyperparameters import by_content
from polyshot.estimator.rows import Rows
from polyshot.gp import as_tensor, most_informative

_NOISE = 0.1  # variance of what a label says, relative to the prior variance (docs/estimator-active.md)
_MOST_TARGETS = 500
_ASIDE = 3  # power of the share of rows that look stranger


class Labelling(Answers):
    """Active learning with OneVsEachClassifier."""

    def next_to_label(self, X: Any, n: Any = 1, *, new_classes: bool = True) -> NDArray[np.int64]:
        """The rows whose labels would say most about the uncertain rows of X.

        A row is chosen for what its label would tell about all rows: rows matter by their uncertainty, and rows that
        are already chosen for the batch count as known. So the batch is diverse, and a single odd row, which tells
        about no other, is left aside. Copies of chosen or labelled rows come last. The choice is deterministic.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, n_features)
            Unlabelled rows.
        n : int, default=1
            How many rows to choose.
        new_classes : bool, default=True
            Whether rows that look like none of the classes may be worth a label, as at the start, when not every class
            has an example. If False, they are set aside; say so if many rows of X belong to no class.

        Returns
        -------
        ndarray of shape (n,)
            Row numbers of X; the most informative first.

        Examples
        --------
        >>> from polyshot import OneVsEachClassifier
        >>> model = OneVsEachClassifier().fit([[0.0], [1.0]], ["low", "high"])
        >>> model.next_to_label([[0.0], [0.45], [0.5], [0.55], [9.0]])
        array([2])
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"n must be a whole number of at least 1, not {n!r}")

        def rows(model: FittedModel, pool: Rows) -> NDArray[np.int64]:
            if issparse(pool):
                raise InputError("next_to_label needs dense rows, also in fit; use X.toarray()")
            if n > len(pool):
                raise InputError(f"cannot choose {n:,} of {len(pool):,} rows; ask for at most as many as X has")
            return np.array(_informative(model, pool, int(n), new_classes), dtype=np.int64)

        return self._answer(X, rows)


def _informative(model: FittedModel, pool: Tensor, n: int, new_classes: bool) -> list[int]:
    covariance, labelled = model.covariance, as_tensor(model.examples.X)
    K = covariance(labelled, labelled)
    L = torch.linalg.cholesky((K + K.mT) / 2 + _NOISE * torch.eye(len(K), dtype=K.dtype))
    seen = torch.linalg.solve_triangular(L, covariance(labelled, pool), upper=False)

    def remaining(rows: Tensor) -> Tensor:
        prior = covariance(pool, pool[rows])
        posterior: Tensor = prior - seen.mT @ seen[:, rows]
        return posterior

    targets = torch.tensor(by_content(pool.numpy())[:_MOST_TARGETS])
    relevance = (1 - torch.softmax(model.logits(pool[targets]), -1).square().sum(-1)).sqrt()
    if not new_classes:
        rank = model.outlier_scores(pool[targets]).argsort().argsort() / len(targets)
        relevance *= (1 - rank) ** _ASIDE
    _, copies = np.unique(np.concatenate([labelled.numpy(), pool.numpy()]), axis=0, return_inverse=True)
    group = torch.from_numpy(copies[len(labelled) :])
    avoided = torch.isin(group, torch.from_numpy(copies[: len(labelled)]))
    variances = covariance.diagonal(pool) - seen.square().sum(0)
    return most_informative(remaining, variances, targets, relevance, avoided, group, n, _NOISE)
