"""TextEncoder and ImageEncoder: raw items to vectors, with scikit-learn's conventions."""

import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from polyshot.encoders.base import Encoder, Kind, Vectors
from polyshot.encoders.batches import Unreadable, encode_batch
from polyshot.encoders.cache import VectorCache
from polyshot.encoders.items import image_items, list_rows, text_items
from polyshot.encoders.registry import find_encoder
from polyshot.errors import DataError, InputError
from polyshot.system.progress import Progress

_LONG = 3.0  # seconds after which progress is shown
_ON_ERROR = ("raise", "nan")
_ITEMS: dict[Kind, Callable[[Any], list[Any]]] = {"text": text_items, "images": image_items}


@dataclass(frozen=True)
class Encoded:
    """Vectors of n items, and which items could not be read.

    Attributes
    ----------
    vectors : float32 array [n, d]
        NaN in the rows of items that could not be read.
    failures : dict
        Row to reason, for those items.
    """

    vectors: Vectors
    failures: dict[int, str]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows that could be read."""
        return np.setdiff1d(np.arange(len(self.vectors)), list(self.failures))


class _Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both have: batches, cache, progress, and one report of all items that cannot be read."""

    _kind: ClassVar[Kind]
    model: Any
    cache: Any
    batch_size: Any
    progress: Any

    def fit(self, X: Any = None, y: Any = None) -> Any:
        """Check the parameters; there is nothing to learn."""
        self._check_parameters()
        return self

    def encode(self, X: Any) -> Encoded:
        """Encode what can be read, and say which items cannot; unlike `transform` it never raises for those.

        Parameters
        ----------
        X : list, array or pandas Series of n items
            As in `transform`.

        Returns
        -------
        Encoded
            With vectors [n, d] and the reasons why rows failed.
        """
        encoder = self._check_parameters()
        items = _ITEMS[self._kind](X)
        size = int(self.batch_size)
        failures: dict[int, str] = {}
        vectors: Vectors | None = None
        with ExitStack() as stack:
            title = f"encoding with {encoder.title}"
            tell = stack.enter_context(_late_progress(title, len(items), bool(self.progress)))
            pool = stack.enter_context(ThreadPoolExecutor(min(8, os.cpu_count() or 1)))
            cache = None if self.cache is None else VectorCache(None if self.cache == "default" else self.cache)
            if cache is not None:
                stack.enter_context(cache)
            for first in range(0, len(items), size):
                found = encode_batch(encoder, items[first : first + size], cache, pool)
                for row, vector in enumerate(found, start=first):
                    if isinstance(vector, Unreadable):
                        failures[row] = vector.reason
                        continue
                    if vectors is None:
                        vectors = np.full((len(items), len(vector)), np.nan, np.float32)
                    if len(vector) != vectors.shape[1]:
                        raise InputError(f"{encoder.title} returned {vectors.shape[1]} numbers, then {len(vector)}")
                    vectors[row] = vector
                tell(first + len(found))
        if vectors is None:
            vectors = np.full((len(items), encoder.dimension), np.nan, np.float32)
        return Encoded(vectors, failures)

    @property
    def encoder(self) -> Encoder:
        """What does the work; it says its title, licence, citation and dimension."""
        return find_encoder(self.model, self._kind)

    @property
    def _n_features_out(self) -> int:
        return self.encoder.dimension

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def _check_parameters(self) -> Encoder:
        if not isinstance(self.batch_size, Integral) or self.batch_size < 1:
            raise InputError(f"batch_size must be a whole number above zero, not {self.batch_size!r}")
        if self.cache is not None and not isinstance(self.cache, (str, Path)):
            raise InputError(f"cache must be 'default', a folder or None, not {self.cache!r}")
        return self.encoder


class TextEncoder(_Transformer):
    """Turn texts into vectors for a classifier.

    Parameters
    ----------
    model : str, Encoder or callable, default "wordllama"
        A name of `polyshot.encoders.ENCODERS` ("wordllama", "minilm", "sentence-transformers:NAME"), an encoder, or a
        function from a list of strings to vectors [n, d].
    cache : "default", path or None, default "default"
        Folder in which vectors are kept, so that the same text is encoded once; None keeps none.
    batch_size : int, default 1024
        Texts per step; after each step the cache is written.
    progress : bool, default True
        Show progress when encoding takes longer than three seconds.

    Notes
    -----
    Items are strings, in a list, an array, a pandas Series or a table of one column. An empty string is a text.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from polyshot import OneVsEachClassifier
    >>> from polyshot.encoders import TextEncoder
    >>> texts = ["refund my order", "money back please", "cannot log in", "password is rejected"]
    >>> model = make_pipeline(TextEncoder(), OneVsEachClassifier()).fit(texts, ["refund", "refund", "login", "login"])
    >>> model.predict(["I want my money back", "my password does not work"]).tolist()
    ['refund', 'login']
    """

    _kind = "text"

    def __init__(
        self, model: Any = "wordllama", *, cache: Any = "default", batch_size: Any = 1024, progress: Any = True
    ) -> None:
        self.model = model
        self.cache = cache
        self.batch_size = batch_size
        self.progress = progress

    def transform(self, X: Any) -> Vectors:
        """Encode texts.

        Parameters
        ----------
        X : list, array or pandas Series of n strings
            What is no string is named in one InputError.

        Returns
        -------
        float32 array [n, d]
            One vector per text.
        """
        return self.encode(X).vectors


class ImageEncoder(_Transformer):
    """Turn images into vectors for a classifier.

    Parameters
    ----------
    model : str, Encoder or callable, default "efficientnet-lite0"
        A name of `polyshot.encoders.ENCODERS` ("efficientnet-lite0", "mobilenet-v2", "characters", "timm:NAME",
        "open_clip:NAME/WEIGHTS", "polyshot:RUN"), an encoder, or a function from a list of PIL images to vectors
        [n, d].
    cache : "default", path or None, default "default"
        Folder in which vectors are kept, so that the same image is encoded once; None keeps none.
    on_error : "raise" or "nan", default "raise"
        What `transform` does when images cannot be read: raise one DataError that names all of them, or warn and
        return NaN in their rows, so that rows and labels stay in step. `encode` reports them either way.
    batch_size : int, default 32
        Images in memory at once; after each batch the cache is written.
    progress : bool, default True
        Show progress when encoding takes longer than three seconds.

    Notes
    -----
    Items are paths, image files as bytes, PIL images, or uint8 pixels [h, w], [h, w, c] or [c, h, w].

    Examples
    --------
    >>> import numpy as np
    >>> from polyshot.encoders import ImageEncoder
    >>> images = np.zeros((2, 40, 60, 3), np.uint8)
    >>> ImageEncoder(lambda images: [[image.width, image.height] for image in images]).transform(images).tolist()
    [[60.0, 40.0], [60.0, 40.0]]
    """

    _kind = "images"

    def __init__(
        self,
        model: Any = "efficientnet-lite0",
        *,
        cache: Any = "default",
        on_error: Any = "raise",
        batch_size: Any = 32,
        progress: Any = True,
    ) -> None:
        self.model = model
        self.cache = cache
        self.on_error = on_error
        self.batch_size = batch_size
        self.progress = progress

    def transform(self, X: Any) -> Vectors:
        """Encode images.

        Parameters
        ----------
        X : list, array or pandas Series of n images
            Paths, image files as bytes, PIL images or uint8 pixels.

        Returns
        -------
        float32 array [n, d]
            One vector per image.
        """
        encoded = self.encode(X)
        if encoded.failures:
            found = f"{len(encoded.failures)} of {len(encoded.vectors)} images cannot be read"
            rows = list_rows(encoded.failures)
            if self.on_error == "raise":
                raise DataError(f"{found}; replace or drop them, or set on_error='nan'\n{rows}")
            warnings.warn(f"{found}; their vectors are NaN\n{rows}", stacklevel=2)
        return encoded.vectors

    def _check_parameters(self) -> Encoder:
        if self.on_error not in _ON_ERROR:
            raise InputError(f"unknown on_error {self.on_error!r}; choose from {', '.join(_ON_ERROR)}")
        return super()._check_parameters()


@contextmanager
def _late_progress(title: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """A function to call with the number done; nothing is shown for short work."""
    start = time.monotonic()
    bar: Progress | None = None

    def tell(done: int) -> None:
        nonlocal bar
        if bar is None and shown and done < total and time.monotonic() - start > _LONG:
            bar = Progress(title, total, done).__enter__()
        if bar is not None:
            bar.update(done)

    try:
        yield tell
    finally:
        if bar is not None:
            bar.__exit__()
