"""Every encoder by name: `wordllama`, `timm:NAME`, `polyshot:RUN`; or an object or function of the user's own."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from polyshot.encoders.base import Encoder, FunctionEncoder, Kind
from polyshot.encoders.images import EfficientNetLite0, MobileNetV2, OpenClip, Timm
from polyshot.encoders.text import MiniLM, SentenceTransformers, WordLlama
from polyshot.encoders.trained import Characters, RunEncoder
from polyshot.errors import InputError
from polyshot.system.registry import Registry

ENCODERS: Registry[type[Encoder]] = Registry(
    "encoder",
    {
        "wordllama": WordLlama,
        "minilm": MiniLM,
        "sentence-transformers": SentenceTransformers,
        "efficientnet-lite0": EfficientNetLite0,
        "mobilenet-v2": MobileNetV2,
        "characters": Characters,
        "timm": Timm,
        "open_clip": OpenClip,
        "polyshot": RunEncoder,
    },
    group="polyshot.encoders",
)


def find_encoder(model: Any, kind: Kind) -> Encoder:
    """The encoder that `model` stands for.

    Parameters
    ----------
    model : str, Encoder or callable
        A name of `ENCODERS`, with `:ARGUMENT` where it takes one; an encoder; or a function from a list of texts or of
        PIL images to vectors [n, d].
    kind : "text" or "images"
        What is to be encoded.

    Returns
    -------
    Encoder
        With title, licence, citation and dimension. A loaded network is shared by all who ask for the same name.

    Examples
    --------
    >>> from polyshot.encoders import find_encoder
    >>> find_encoder(lambda texts: [[len(text)] for text in texts], "text").dimension
    1
    """
    if isinstance(model, str):
        name, colon, argument = model.partition(":")
        found = ENCODERS.find(name)
        if found.argument is None and colon:
            raise InputError(f"the encoder {name!r} takes nothing after a colon; write {name!r}, not {model!r}")
        if found.argument is not None and not argument:
            raise InputError(f"the encoder {name!r} needs {found.argument}")
        _check_kind(found.kind, kind, model)
        return _load(found, argument, found.stamp(argument))
    if isinstance(model, Encoder):
        _check_kind(model.kind, kind, model.title)
        return model
    if callable(model):
        return FunctionEncoder(kind, model)
    raise InputError(f"model is the name of an encoder, an Encoder or a function, not {model!r}")


def _check_kind(found: Kind, kind: Kind, name: str) -> None:
    if found != kind:
        others = [other for other, encoder in ENCODERS.items() if encoder.kind == kind]
        raise InputError(f"{name!r} encodes {found}, not {kind}; for {kind} choose from {', '.join(others)}")


@lru_cache(maxsize=4)  # networks can be large
def _load(encoder: type[Encoder], argument: str, stamp: Hashable) -> Encoder:
    return encoder() if encoder.argument is None else encoder(argument)  # type: ignore[call-arg]
