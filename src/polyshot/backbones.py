"""Backbones: image batches to feature vectors. Any nn.Module that does so can take their place."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyshot.errors import InputError


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, batch normalisation, ReLU and 2x2 max-pooling (the paper's Conv4).

    28x28 grey images give 64 features, 84x84 colour images 1600. `flatten=False` keeps the map
    [n, width, h, w] (relation networks). Batch normalisation uses the batch's statistics in training and
    running ones in evaluation, or the batch's always (`batch_statistics=True`: MAML and its kin).
    """

    def __init__(self, in_channels: int, width: int = 64, flatten: bool = True, batch_statistics: bool = False) -> None:
        super().__init__()
        channels = [in_channels, width, width, width]
        self.blocks = nn.Sequential(*(_block(c, width, not batch_statistics) for c in channels))
        self.flatten = flatten
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n *features"]:
        """Features [n, width * (h // 16) * (w // 16)], or the map."""
        x = self.blocks(x.contiguous(memory_format=torch.channels_last))
        return x.flatten(1) if self.flatten else x


def _block(in_channels: int, width: int, running_statistics: bool) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, width, kernel_size=3, padding=1),
        nn.BatchNorm2d(width, track_running_stats=running_statistics),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


BACKBONES: dict[str, Callable[..., nn.Module]] = {"conv4": Conv4, "identity": nn.Identity}


def build_backbone(name: str, **options: int | bool) -> nn.Module:
    """A backbone by name; `identity` is for embeddings and takes no options."""
    if name not in BACKBONES:
        raise InputError(f"no backbone {name!r}; there is {', '.join(BACKBONES)}")
    return BACKBONES[name](**options)
