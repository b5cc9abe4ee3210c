"""What the decisions so far teach: answers for the open items, what to ask next, suspects and strangers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import AgglomerativeClustering

from polyshot.app.advice import SUSPECT
from polyshot.app.labelling.enough import Accuracy, accuracy
from polyshot.app.labelling.ranking import choose_quickly
from polyshot.estimator import OneVsEachClassifier

N_NEXT = 8  # items that wait to be shown
_MOST_SUSPECTS = 30
_MOST_STRANGERS = 40
_PARTS = 10  # of the strangers, between which a newer decision is looked for
_MOST_GROUPS = 6
_FALSE_ALARM = 0.05


@dataclass(frozen=True)
class Learned:
    """What follows from the decisions up to `version`.

    Attributes
    ----------
    version : int
        Of the last decision that was taken into account.
    labels : dict
        Row to class or "none of these": the examples of the model.
    model : OneVsEachClassifier or None
        None while there are fewer than two classes.
    rows : ndarray of shape (n_open,)
        The open rows.
    probabilities : ndarray of shape (n_open, n_classes)
        Their class probabilities.
    order : list of int
        Open rows to ask about next, the one most worth it first.
    accuracy : Accuracy or None
        What is to be expected of the answers; None while there is no spot check.
    suspects : list of (int, float)
        Rows whose label does not fit the others, with its probability.
    strangers : list of list of int
        Open rows unlike all examples, in groups of similar ones.
    complete : bool
        Whether accuracy, suspects and strangers are of this version too, and not of the one before.
    """

    version: int
    labels: Mapping[int, str]
    model: OneVsEachClassifier | None
    rows: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    order: Sequence[int]
    accuracy: Accuracy | None = None
    suspects: Sequence[tuple[int, float]] = ()
    strangers: Sequence[Sequence[int]] = ()
    complete: bool = False

    @property
    def classes(self) -> list[str]:
        """The classes, in the order of the columns of `probabilities`."""
        return [] if self.model is None else list(map(str, self.model.classes_.tolist()))

    def guess(self, row: int) -> dict[str, float]:
        """The probability of each class for an open row; empty if there is none yet."""
        place = int(np.searchsorted(self.rows, row))
        if self.model is None or place == len(self.rows) or self.rows[place] != row:
            return {}
        return dict(zip(self.classes, self.probabilities[place].tolist(), strict=True))


def answer_open(
    X: NDArray[np.float32],
    version: int,
    labels: Mapping[int, str],
    decided: set[int],
    first: Sequence[int],
    before: Learned | None,
) -> Learned:
    """The model, its answers for the open rows, and which of them to ask about next: what the page waits for.

    `first` is the order before there is a model; `before` is the last result, whose model grows if labels were only
    added.
    """
    rows = np.array([row for row in range(len(X)) if row not in decided], np.int64)
    model = _grown(X, labels, before) if len(set(labels.values())) > 1 else None
    if model is None or not len(rows):
        probabilities = np.empty((len(rows), 0))
        order = [row for row in first if row not in decided][:N_NEXT]
    else:
        probabilities = model.predict_proba(X[rows])
        order = [int(rows[k]) for k in choose_quickly(model, X[rows], probabilities, N_NEXT)]
    learned = Learned(version, labels, model, rows, probabilities, order)
    if before is None or model is None:
        return learned
    return replace(learned, accuracy=before.accuracy, suspects=before.suspects, strangers=before.strangers)


def look_closer(
    X: NDArray[np.float32],
    learned: Learned,
    confirmed: set[int],
    checks: Sequence[int],
    outdated: Callable[[], bool],
) -> Learned | None:
    """The same with the accuracy, the suspects and the strangers, which may come a moment later.

    Rows in `confirmed` are no suspects; `checks` are the spot checks. Once it is `outdated`, because the person went
    on, it stops and returns None.
    """
    model = learned.model
    if outdated():
        return None
    if model is None:
        return replace(learned, complete=True)
    examples = list(learned.labels)
    places, probabilities = model.suspect_labels()
    suspects = [
        (examples[place], float(p))
        for place, p in zip(places.tolist(), probabilities.tolist(), strict=True)
        if p < SUSPECT and examples[place] not in confirmed
    ]
    strangers = _strangers(X, learned, model, outdated)
    if strangers is None:
        return None
    place_of = {row: place for place, row in enumerate(examples)}
    found = accuracy(len(X) - len(learned.rows), model, [place_of[row] for row in checks])
    return replace(learned, accuracy=found, suspects=suspects[:_MOST_SUSPECTS], strangers=strangers, complete=True)


def _grown(X: NDArray[np.float32], labels: Mapping[int, str], before: Learned | None) -> OneVsEachClassifier:
    """The model of the labels: the one before with what is new, or another if a label was changed or taken back."""
    old = {} if before is None or before.model is None else before.labels
    if not old or any(labels.get(row) != label for row, label in old.items()) or list(labels)[: len(old)] != list(old):
        return OneVsEachClassifier().fit(X[list(labels)], np.array(list(labels.values())))
    assert before is not None
    model = copy(before.model)
    assert model is not None
    new = [row for row in labels if row not in old]
    return model.add(X[new], np.array([labels[row] for row in new])) if new else model


def _strangers(
    X: NDArray[np.float32], learned: Learned, model: OneVsEachClassifier, outdated: Callable[[], bool]
) -> list[list[int]] | None:
    """Open rows with a p-value below 5 %, grouped; the strangest are looked at, because each p-value costs time."""
    if 1 / (len(learned.labels) + 1) >= _FALSE_ALARM or not len(learned.rows):
        return []
    strangest = learned.rows[np.argsort(-model.outlier_score(X[learned.rows]))[:_MOST_STRANGERS]]
    p_values = []
    for few in np.array_split(strangest, _PARTS):
        if outdated():
            return None
        p_values.append(model.outlier_p_value(X[few]) if len(few) else np.empty(0))
    found = strangest[np.concatenate(p_values) < _FALSE_ALARM]
    n_groups = min(_MOST_GROUPS, len(found) // 3)
    if n_groups < 2:
        return [found.tolist()] if len(found) else []
    groups = AgglomerativeClustering(n_groups).fit_predict(X[found])
    return [found[groups == group].tolist() for group, _ in Counter(groups.tolist()).most_common()]
