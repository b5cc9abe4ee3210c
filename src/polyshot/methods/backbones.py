"""Backbones: image batches to feature vectors. Any nn.Module that does so can take their place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyshot.errors import InputError


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, batch normalisation, ReLU and 2x2 max-pooling (the paper's Conv4).

    28x28 grey images give 64 features, 84x84 colour images 1600. `flatten=False` keeps the map
    [n, width, h, w] (relation networks). `norm="batch"` is ordinary batch normalisation: the batch's statistics in
    training, running ones in evaluation; `norm="support"` is SupportNorm (MAML and ABML).
    """

    def __init__(
        self, in_channels: int, width: int = 64, flatten: bool = True, norm: Literal["batch", "support"] = "batch"
    ) -> None:
        super().__init__()
        if norm not in _NORMS:
            raise InputError(f"no norm {norm!r}; there is {', '.join(_NORMS)}")
        channels = [in_channels, width, width, width]
        self.blocks = nn.Sequential(*(_block(c, width, _NORMS[norm]) for c in channels))
        self.flatten = flatten
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n *features"]:
        """Features [n, width * (h // 16) * (w // 16)], or the map."""
        x = self.blocks(x.contiguous(memory_format=torch.channels_last))
        return x.flatten(1) if self.flatten else x


class SupportNorm(nn.Module):
    """Batch normalisation by the support set's statistics, in training and evaluation alike; it keeps none.

    Bronskill et al., "TaskNorm: Rethinking Batch Normalization for Meta-Learning", ICML 2020 (there "MetaBN"). The
    statistics are those of the first rows, as many as `support_rows` says, of all rows outside it; so a query is
    normalised in the same way whatever queries are beside it.
    """

    def __init__(self, n_channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_channels))
        self.bias = nn.Parameter(torch.zeros(n_channels))
        self.eps = eps
        self.n_support: int | None = None

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """(x - mean) / sd * weight + bias, channel by channel."""
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


_NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm2d, "support": SupportNorm}


def _block(in_channels: int, width: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, width, kernel_size=3, padding=1),
        norm(width),
        nn.MaxPool2d(2),
        nn.ReLU(),  # the same as before the pooling, on a quarter of the numbers
    )


BACKBONES: dict[str, Callable[..., nn.Module]] = {"conv4": Conv4, "identity": nn.Identity}


def build_backbone(name: str, **options: int | bool | str) -> nn.Module:
    """A backbone by name; `identity` is for embeddings and takes no options."""
    if name not in BACKBONES:
        raise InputError(f"no backbone {name!r}; there is {', '.join(BACKBONES)}")
    return BACKBONES[name](**options)
