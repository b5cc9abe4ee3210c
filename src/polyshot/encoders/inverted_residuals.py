"""The network that MobileNetV2 and EfficientNet-Lite share: a stack of inverted residual blocks."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyshot.errors import DataError


class Stage(NamedTuple):
    """Blocks of one width: how far they expand, channels, number of blocks, stride of the first, side of the kernel."""

    expansion: int
    channels: int
    n_blocks: int
    stride: int
    kernel: int


class InvertedResiduals(nn.Module):
    """Images with sides that 32 divides to 1280 features.

    eps: of batch normalisation. pad_at_end: where the stride is 2, pad one side more than the other, as TensorFlow.
    """

    def __init__(self, stages: Sequence[Stage], eps: float = 1e-5, pad_at_end: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 32, 3, 2, 1, eps, pad_at_end), nn.ReLU6()]
        before = 32
        for stage in stages:
            for number in range(stage.n_blocks):
                stride = stage.stride if number == 0 else 1
                layers.append(_Block(before, stage._replace(stride=stride), eps, pad_at_end))
                before = stage.channels
        self.layers = nn.Sequential(*layers, *_convolution(before, 1280, 1, 1, 1, eps, pad_at_end), nn.ReLU6())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1280"]:
        """The last layer's features, averaged over the image."""
        features: Tensor = self.layers(x.contiguous(memory_format=torch.channels_last))
        return features.mean((2, 3))

    def load_in_order(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights from a file whose names are other than ours, but whose order is the same.

        What comes after our last layer, the classes of ImageNet, is left out.
        """
        own = self.state_dict()
        taken = dict(zip(own, weights.values(), strict=False))
        if len(taken) < len(own) or any(tensor.shape != own[name].shape for name, tensor in taken.items()):
            raise DataError("the weights are of another network; their shapes do not fit")
        self.load_state_dict(taken)


class _Block(nn.Module):
    """Expand, filter each channel by itself, project; added to the input where the shapes agree."""

    def __init__(self, before: int, stage: Stage, eps: float, pad_at_end: bool) -> None:
        super().__init__()
        inner, kernel, stride = before * stage.expansion, stage.kernel, stage.stride
        expand = [*_convolution(before, inner, 1, 1, 1, eps, pad_at_end), nn.ReLU6()] if stage.expansion > 1 else []
        filter_ = [*_convolution(inner, inner, kernel, stride, inner, eps, pad_at_end), nn.ReLU6()]
        self.layers = nn.Sequential(*expand, *filter_, *_convolution(inner, stage.channels, 1, 1, 1, eps, pad_at_end))
        self.adds = stride == 1 and before == stage.channels

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


def _convolution(
    before: int, after: int, kernel: int, stride: int, groups: int, eps: float, pad_at_end: bool
) -> list[nn.Module]:
    if pad_at_end and stride == 2:
        start = (kernel - 2) // 2
        end = kernel - 2 - start
        convolution = nn.Conv2d(before, after, kernel, stride, groups=groups, bias=False)
        return [nn.ZeroPad2d((start, end, start, end)), convolution, nn.BatchNorm2d(after, eps)]
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(after, eps)]
