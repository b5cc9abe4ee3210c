"""The contract of an encoder: what it says about itself, and how it turns a batch of items into vectors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Kind: TypeAlias = Literal["text", "images"]
Vectors: TypeAlias = NDArray[np.float32]


class Encoder(ABC):
    """Base of all encoders. A new one is a subclass and one line, `ENCODERS.register(name, Subclass)`.

    Make it cheap to construct and load the network when it is first needed: vectors that are in the cache need none.

    Attributes
    ----------
    kind : "text" or "images"
        What it encodes.
    title, licence, citation : str
        What it is, on what terms its weights may be used, and whom to cite.
    dimension : int
        Length of a vector.
    digest : str or None
        Identity of the weights and of everything else that a vector depends on. Vectors are kept in the cache under
        this identity; None keeps them out of it.
    mode : "RGB" or "L"
        Colour or grey, for images.
    argument : str or None
        What stands behind the colon in `name:ARGUMENT`, with an example; None where nothing does. A subclass with an
        argument takes it in its constructor.
    """

    kind: ClassVar[Kind]
    argument: ClassVar[str | None] = None
    mode: Literal["RGB", "L"] = "RGB"
    title: str
    licence: str
    citation: str
    dimension: int
    digest: str | None

    @abstractmethod
    def encode(self, items: Sequence[Any]) -> Vectors:
        """Vectors [n, dimension] of n texts, or of n images as `prepare` returned them."""

    def prepare(self, image: Image.Image) -> Any:
        """Bring one image to the size that the network takes; runs in several threads."""
        return image

    @classmethod
    def stamp(cls, argument: str) -> Hashable:
        """Changes when the files behind the argument change, so that they are read again."""
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Encoder":
        """An encoder does not change; `sklearn.clone` shares it."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A pickle holds no network; it is loaded again when needed."""
        return {name: value for name, value in self.__dict__.items() if name != "network"}


class FunctionEncoder(Encoder):
    """Any function from a list of texts, or of PIL images in colour, to vectors [n, d].

    Its vectors are not cached, since nobody can know whether the function has changed.
    """

    digest = None
    licence = citation = "not known"

    def __init__(self, kind: Kind, function: Callable[[list[Any]], Any]) -> None:
        self.kind = kind  # type: ignore[misc]
        self.function = function
        self.title = f"the function {getattr(function, '__name__', type(function).__name__)}"

    @cached_property
    def dimension(self) -> int:  # type: ignore[override]
        """Found by encoding one empty text or one white image."""
        blank = {"text": "", "images": Image.new("RGB", (32, 32), "white")}[self.kind]
        return int(self.encode([blank]).shape[1])

    def encode(self, items: Sequence[Any]) -> Vectors:
        """What the function returns."""
        return np.asarray(self.function(list(items)), np.float32)
