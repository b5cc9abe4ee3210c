"""Backbones: networks that turn batches of examples into features. Any nn.Module that does so can take their place."""

import copy
import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyshot.errors import InputError
from polyshot.system.registry import Registry
from polyshot.task import Space

Init: TypeAlias = Literal["torch", "he-fan-out"]


class Conv4(nn.Module):
    """The paper's Conv4: four blocks of 3x3 convolution, batch normalisation, ReLU and 2x2 max-pooling.

    28x28 grey images give 64 features, 84x84 colour images 1600.

    Parameters
    ----------
    in_channels : int
        1 for grey images, 3 for colour images.
    width : int
        Filters per convolution.
    flatten : bool
        Whether to return vectors. False keeps the feature maps [n, width, h, w], for relation networks.
    norm : {"batch", "support"}
        "batch" is ordinary batch normalisation: the batch's statistics in training, running ones in evaluation.
        "support" is `SupportNorm`, for MAML and ABML.
    pools : {4, 2}
        2 is the network of relation networks: the first two blocks have no padding, the last two no pooling. 28x28
        images then give 5x5 maps, 84x84 images 19x19.
    init : {"torch", "he-fan-out"}
        How the convolutions' weights start: torch's default, or N(0, 2 / (9 width)) as in the paper's public code.
    """

    def __init__(
        self,
        in_channels: int,
        width: int = 64,
        flatten: bool = True,
        norm: Literal["batch", "support"] = "batch",
        pools: Literal[4, 2] = 4,
        init: Init = "torch",
    ) -> None:
        super().__init__()
        channels = [in_channels, width, width, width]
        padding = [1, 1, 1, 1] if pools == 4 else [0, 0, 1, 1]
        blocks = [
            _block(c, width, _NORMS.find(norm), p, pool=k < pools)
            for k, (c, p) in enumerate(zip(channels, padding, strict=True))
        ]
        self.blocks = nn.Sequential(*blocks)
        self.flatten = flatten
        initialise(self, init)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n *features"]:
        """Features [n, width * (h // 16) * (w // 16)], or the feature maps."""
        x = self.blocks(x.contiguous(memory_format=torch.channels_last))
        return x.flatten(1) if self.flatten else x


class SupportNorm(nn.Module):
    """Batch normalisation by the support set's statistics, both in training and in evaluation.

    Bronskill et al., "TaskNorm: Rethinking Batch Normalization for Meta-Learning", ICML 2020 (there "MetaBN"). Inside
    `support_rows` the statistics are those of the first rows, outside it those of all rows. So a query is normalised
    the same way whatever other queries are in the batch. No running statistics are kept.
    """

    def __init__(self, n_channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_channels))
        self.bias = nn.Parameter(torch.zeros(n_channels))
        self.eps = eps
        self.n_support: int | None = None

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """(x - mean) / sd * weight + bias, per channel."""
        rows = x[: self.n_support]
        mean = rows.mean((0, 2, 3), keepdim=True)
        variance = (rows - mean).square().mean((0, 2, 3), keepdim=True)  # torch.var_mean is slower
        scale = self.weight[:, None, None] * torch.rsqrt(variance + self.eps)
        return torch.addcmul(self.bias[:, None, None] - mean * scale, x, scale)


@contextmanager
def support_rows(module: nn.Module, n_support: int) -> Iterator[None]:
    """Inside, every SupportNorm of the module takes its statistics from the first n_support rows."""
    norms = [m for m in module.modules() if isinstance(m, SupportNorm)]
    try:
        for norm in norms:
            norm.n_support = n_support
        yield
    finally:
        for norm in norms:
            norm.n_support = None


_NORMS = Registry[Callable[[int], nn.Module]]("norm", {"batch": nn.BatchNorm2d, "support": SupportNorm})


def _block(in_channels: int, width: int, norm: Callable[[int], nn.Module], padding: int, pool: bool) -> nn.Sequential:
    # ReLU after pooling gives the same result as before it, on a quarter of the numbers.
    pooling = [nn.MaxPool2d(2)] if pool else []
    return nn.Sequential(
        nn.Conv2d(in_channels, width, kernel_size=3, padding=padding), norm(width), *pooling, nn.ReLU()
    )


def initialise(module: nn.Module, init: Init) -> None:
    """Draw the weights of all convolutions again as `init` says; "torch" leaves them as they are."""
    if init == "he-fan-out":
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, 0, math.sqrt(2 / (layer.out_channels * math.prod(layer.kernel_size))))


BACKBONES: Registry[Callable[..., nn.Module]] = Registry(
    "backbone", {"conv4": Conv4, "identity": nn.Identity}, "polyshot.backbones"
)


def find_backbone(name: str) -> Callable[..., nn.Module]:
    """The class of a backbone, by its registered name or its import path.

    Parameters
    ----------
    name : str
        A name in `BACKBONES`, or an import path such as "my_package.networks:ResNet".

    Returns
    -------
    callable
        Returns an nn.Module; `build_backbone` passes it `in_channels` if it has such a parameter.

    Examples
    --------
    >>> find_backbone("torch.nn:Flatten")
    <class 'torch.nn.modules.flatten.Flatten'>
    """
    if ":" not in name:
        return BACKBONES.find(name)
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise InputError(
            f"the backbone {name!r} cannot be imported ({type(error).__name__}: {error}); give a module that Python "
            "finds from here and a class in it, such as my_networks:ResNet"
        ) from error
    # nothing else is ever called, because the name may come from a run folder of a stranger
    if not isinstance(kind, type) or not issubclass(kind, nn.Module):
        raise InputError(f"the backbone {name!r} is not a class of nn.Module; give the path of one, or register it")
    return kind


def build_backbone(name: str, space: Space) -> nn.Module:
    """A new backbone for these examples, by registered name or import path (`find_backbone`)."""
    kind = find_backbone(name)
    options = {"in_channels": space.shape[0]} if "in_channels" in inspect.signature(kind).parameters else {}
    try:
        backbone = kind(**options)
        if not isinstance(backbone, nn.Module):
            raise TypeError(f"it is a {type(backbone).__name__}, not an nn.Module")
        with torch.no_grad():
            features = copy.deepcopy(backbone).eval()(torch.zeros(2, *space.shape))
        if not isinstance(features, Tensor) or len(features) != 2:
            raise TypeError("it does not return one tensor with a row per example")
    except Exception as error:
        raise InputError(
            f"the backbone {name!r} does not work for {space.kind} of shape {list(space.shape)}: {error}"
        ) from error
    return backbone
