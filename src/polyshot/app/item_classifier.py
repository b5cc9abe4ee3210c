"""An encoder and a classifier as one model: learns from labelled items, answers about others, is kept in a file."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from polyshot.app.answers import Action, Answer, Levels
from polyshot.app.items import ItemKind, Items, default_encoder, encode, encoder_digest, sample, unusable
from polyshot.errors import DataError, InputError
from polyshot.estimator import OneVsEachClassifier
from polyshot.estimator.covariance import out_of_reach
from polyshot.estimator.hyperparameters import by_content
from polyshot.system.sealed import read_sealed, write_sealed

_FORMAT = "polyshot classify 1"
_FIELDS = {"format", "kind", "encoder", "digest", "names", "contents", "model"}
_FAR = "lies so far from all other rows that the kernel could no longer tell those apart"
_ITEMS = "items"  # the kind of items, among the metadata of the model's file
_EXCERPT = 120  # characters of a text
_MOST_BYTES = 2**28  # of a record, which holds the texts of the examples


@dataclass(frozen=True)
class ItemClassifier:
    """A classifier of texts, images or vectors.

    Attributes
    ----------
    model : OneVsEachClassifier
        The fitted classifier of vectors.
    encoder : str, Encoder, callable or None
        What turns items into vectors; None if they are vectors.
    examples : Items
        The labelled examples, in the order in which the model has them, without those that could not be used.

    Examples
    --------
    >>> from polyshot.app import ItemClassifier, Items
    >>> examples = Items.of("vectors", [[0.0], [0.1], [0.9], [1.0]])
    >>> model = ItemClassifier.fit(examples, ["low", "low", "high", "high"])
    >>> answers, failures = model.answer(Items.of("vectors", [[0.95]]))
    >>> answers[0].predicted, [model.examples.names[row] for row in answers[0].nearest[:2]]
    ('high', ['row 3', 'row 4'])
    """

    model: OneVsEachClassifier
    encoder: Any
    examples: Items

    @classmethod
    def fit(
        cls,
        examples: Items,
        labels: Sequence[str],
        encoder: Any = None,
        *,
        pool: Items | None = None,
        skip_unreadable: bool = False,
    ) -> "ItemClassifier":
        """Encode labelled items and fit the classifier.

        Parameters
        ----------
        examples : Items
        labels : sequence of str
            One label per item.
        encoder : str, Encoder or callable, optional
            As in TextEncoder and ImageEncoder; by default theirs.
        pool : Items, optional
            Unlabelled items to learn from as well, such as the queries; of more than 1,000 a random sample is used.
        skip_unreadable : bool
            Leave out examples that cannot be used instead of raising a DataError that names all of them.

        Returns
        -------
        ItemClassifier
        """
        if len(labels) != len(examples):
            raise InputError(f"{len(examples)} examples and {len(labels)} labels; give one label per example")
        if examples.kind == "vectors" and encoder is not None:
            raise InputError("vectors need no encoder; leave it out")
        encoder = default_encoder(examples.kind) if encoder is None else encoder
        encoded = encode(examples, encoder, progress=True)
        if encoded.failures and not skip_unreadable:
            raise unusable(examples, encoded.failures, "labelled examples")
        X = encoded.vectors[encoded.rows].astype(np.float64)
        unlabelled = np.empty((0, X.shape[1])) if pool is None else _pool_vectors(pool, encoder)
        far = out_of_reach("auto", torch.from_numpy(np.concatenate([X, unlabelled]))).numpy()
        far, unlabelled = far[: len(X)], unlabelled[~far[len(X) :]]
        if far.any() and not skip_unreadable:
            raise unusable(examples, dict.fromkeys(encoded.rows[far].tolist(), _FAR), "labelled examples")
        X, rows = X[~far], encoded.rows[~far]
        y = np.array(labels, dtype=str)[rows]
        if lost := sorted(set(labels) - set(y.tolist())):
            raise DataError(
                f"no usable example is left of the classes {', '.join(lost)}; add some, or remove the class"
            )
        order = by_content(X)  # the order in which the model keeps its examples
        X, y = X[order], y[order]
        if len(unlabelled):
            model = OneVsEachClassifier(unlabeled=None)
            model.fit(np.concatenate([X, unlabelled]), [*y.tolist(), *(None for _ in unlabelled)])
        else:
            model = OneVsEachClassifier().fit(X, y)
        return cls(model, encoder, examples.take(rows[order]))

    @property
    def kind(self) -> ItemKind:
        """What it classifies: "text", "images" or "vectors"."""
        return self.examples.kind

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of `Answer.probabilities`."""
        return tuple(map(str, self.model.classes_.tolist()))

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each example."""
        return tuple(self.classes[label] for label in self.model.fitted_.examples.labels.tolist())

    def described(self, example: int) -> str:
        """An example in a few words: the start of its text, or its name."""
        text = self.examples.contents[example] if self.kind == "text" else self.examples.names[example]
        return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"

    def answer(
        self, queries: Items, levels: Levels | None = None, *, cache: Any = "default"
    ) -> tuple[list[Answer], dict[int, str]]:
        """Answers about the queries that can be used, and the reasons why the others cannot.

        Parameters
        ----------
        queries : Items
            Of the kind that the classifier was made from.
        levels : Levels, optional
        cache : "default", path or None
            Where the vectors of texts and images are kept; None keeps none.

        Returns
        -------
        answers : list of Answer
        failures : dict
            Row of a query that cannot be used to the reason.
        """
        levels = levels or Levels()
        if queries.kind != self.kind:
            raise InputError(f"the model classifies {self.kind}, and the queries are {queries.kind}")
        encoded = encode(queries, self.encoder, cache=cache)
        names = [queries.names[row] for row in encoded.rows]
        answers, failures = self._answers_and_failures(names, encoded.vectors[encoded.rows], levels)
        return answers, encoded.failures | {int(encoded.rows[k]): reason for k, reason in failures.items()}

    def _answers_and_failures(
        self, names: list[str], X: NDArray[np.float32], levels: Levels
    ) -> tuple[list[Answer], dict[int, str]]:
        """Answers, and the rows that the model refuses: one of them lets it refuse all rows at once."""
        try:
            return self._answers(names, X, levels) if names else [], {}
        except InputError as error:
            if len(names) == 1:
                return [], {0: str(error)}
        half = len(names) // 2
        first, failures = self._answers_and_failures(names[:half], X[:half], levels)
        second, more = self._answers_and_failures(names[half:], X[half:], levels)
        return first + second, failures | {half + row: reason for row, reason in more.items()}

    def _answers(self, names: list[str], X: NDArray[np.float32], levels: Levels) -> list[Answer]:
        nothing = [None] * len(X)
        probabilities = self.model.predict_proba(X)
        sets = nothing if levels.confidence is None else self.model.predict_set(X, levels.confidence)
        p_values = nothing if levels.false_alarm is None else self.model.outlier_p_value(X)
        nearest = self._nearest(X, levels.n_reasons)
        found = []
        for name, row, members, p, near in zip(names, probabilities, sets, p_values, nearest, strict=True):
            best = int(row.argmax())
            chosen = None if members is None else tuple(self.classes[c] for c in np.flatnonzero(members))
            action: Action = "accept" if chosen is None or chosen == (self.classes[best],) else "ask"
            if p is not None and p < levels.false_alarm:
                action = "none of these"
            p_value = None if p is None else float(p)
            given = chosen, p_value, tuple(near), tuple(row.tolist())
            found.append(Answer(name, self.classes[best], float(row[best]), action, *given))
        return found

    def _nearest(self, X: NDArray[np.float32], n: int) -> list[list[int]]:
        """The examples that the classifier's own kernel finds most similar to each row."""
        fitted = self.model.fitted_
        examples = torch.from_numpy(fitted.examples.X)
        similarity = fitted.covariance(torch.from_numpy(X.astype(np.float64)), examples)
        similarity = similarity / fitted.covariance.diagonal(examples).clamp_min(1e-12).sqrt()
        nearest: list[list[int]] = similarity.topk(min(n, len(examples)), dim=1).indices.tolist()
        return nearest

    def save(self, path: str | Path) -> None:
        """Write the model, and beside it PATH.json: what encodes the items, and which examples it learned from.

        Parameters
        ----------
        path : str or Path
            `OneVsEachClassifier.load` reads this file as well, to classify vectors.
        """
        if self.encoder is not None and not isinstance(self.encoder, str):
            raise InputError("only a model whose encoder has a name can be saved; a function is not kept in a file")
        path = Path(path)
        self.model.save(path, metadata={_ITEMS: self.kind})
        record = {
            "format": _FORMAT,
            "kind": self.kind,
            "encoder": self.encoder,
            "digest": encoder_digest(self.kind, self.encoder),
            "names": list(self.examples.names),
            "contents": None if self.kind == "vectors" else [_as_text(content) for content in self.examples.contents],
            "model": _checksum(path),
        }
        write_sealed(record_path(path), record)

    @classmethod
    def load(cls, path: str | Path) -> "ItemClassifier":
        """Read a model that `save` wrote, or that `OneVsEachClassifier.save` did; nothing is unpickled.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        ItemClassifier
            Of vectors, if it was an OneVsEachClassifier that wrote the file.
        """
        path = Path(path)
        if not path.is_file():
            raise DataError(f"{path}: no such model; `polyshot classify --save` writes one")
        model = OneVsEachClassifier.load(path)
        if not record_path(path).exists() and _ITEMS not in model.metadata_:
            fitted = model.fitted_.examples
            return cls(model, None, Items.of("vectors", fitted.X, [f"example {row + 1}" for row in fitted.rows]))
        record = _read_record(record_path(path))
        if record["model"] != _checksum(path) or len(record["names"]) != len(model.fitted_.examples.X):
            raise DataError(f"{path}: does not belong to {record_path(path)}; copy both files, or save it again")
        if record["digest"] != encoder_digest(record["kind"], record["encoder"]):
            raise DataError(
                f"{path}: the encoder {record['encoder']!r} has other weights than when the model was made; "
                "install that version, or make the model again"
            )
        kind: ItemKind = record["kind"]
        contents: Any = model.fitted_.examples.X if kind == "vectors" else record["contents"]
        if kind == "images":
            contents = [Path(name) for name in contents]
        return cls(model, record["encoder"], Items(kind, record["names"], contents))


def _pool_vectors(pool: Items, encoder: Any) -> NDArray[np.float64]:
    """Vectors of the items that can be used; of many, of a random sample."""
    encoded = encode(pool.take(sample(pool)), encoder, progress=True)
    return encoded.vectors[encoded.rows].astype(np.float64)


def record_path(path: Path) -> Path:
    """The record beside a model file."""
    return path.with_name(f"{path.name}.json")


def _read_record(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; it belongs beside the model file")
    record, sealed = read_sealed(path, _MOST_BYTES)
    try:
        if record.get("format") != _FORMAT or set(record) != _FIELDS or not sealed:
            raise ValueError("it lacks what `polyshot classify --save` writes")
        n = len(record["names"]) if _are_texts(record["names"]) else -1
        contents = [""] * n if record["kind"] == "vectors" else record["contents"]
        encoder = "" if record["kind"] == "vectors" else record["encoder"]
        if record["kind"] not in get_args(ItemKind) or not _are_texts([encoder]) or not _are_texts(contents, n):
            raise ValueError("it does not name a kind of items, their encoder, and the examples")
    except ValueError as error:
        raise DataError(f"{path}: not the record of a model ({error}); save the model again") from error
    return record


def _are_texts(values: Any, n: int | None = None) -> bool:
    """Whether it is a list of strings, n of them if that is given."""
    right = isinstance(values, list) and all(isinstance(value, str) for value in values)
    return right and n in (None, len(values))


def _as_text(content: Any) -> str:
    """A text, or the path of an image; an image in memory leaves no trace."""
    return str(content.absolute()) if isinstance(content, Path) else content if isinstance(content, str) else ""


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
