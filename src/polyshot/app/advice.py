"""What a person can do next to get better answers: which queries to label, and which labels to check."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from polyshot.app.item_classifier import ItemClassifier
from polyshot.app.items import Items, encode, sample

SUSPECT = 0.2  # largest probability of a label that is worth a second look


class Suspect(NamedTuple):
    """An example, by its number, and the probability of its label given all the other examples."""

    example: int
    probability: float


def next_to_label(
    classifier: ItemClassifier, queries: Items, n: int, unusable: Collection[int] = ()
) -> tuple[int, ...]:
    """The rows of the queries whose labels would teach the model most, the best first.

    Parameters
    ----------
    classifier : ItemClassifier
    queries : Items
        Of more than 1,000 a random sample is looked at. Those that cannot be used are left out.
    n : int
        How many rows to choose; fewer if there are fewer.
    unusable : collection of int
        Rows that the classifier refuses.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> from polyshot.app import ItemClassifier, Items, next_to_label
    >>> examples = Items.of("vectors", [[0.0], [0.1], [0.9], [1.0]])
    >>> model = ItemClassifier.fit(examples, ["low", "low", "high", "high"])
    >>> next_to_label(model, Items.of("vectors", [[0.05], [0.5], [0.95]]), 1)
    (1,)
    """
    if not n:
        return ()
    rows = np.setdiff1d(sample(queries), list(unusable))
    encoded = encode(queries.take(rows), classifier.encoder)
    usable = rows[encoded.rows]
    if not len(usable):
        return ()
    chosen = classifier.model.next_to_label(encoded.vectors[encoded.rows], min(n, len(usable)))
    return tuple(usable[chosen].tolist())


def suspects(classifier: ItemClassifier) -> tuple[Suspect, ...]:
    """The examples whose labels do not fit the others, the most suspicious first.

    Their label has a probability below 20 % by the model without them. The only example of a class cannot be judged.
    """
    place = {row: k for k, row in enumerate(classifier.model.fitted_.examples.rows.tolist())}
    rows, probabilities = classifier.model.suspect_labels()
    pairs = zip(rows.tolist(), probabilities.tolist(), strict=True)
    return tuple(Suspect(place[row], p) for row, p in pairs if p < SUSPECT)
