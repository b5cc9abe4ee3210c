"""Mixed precision: the network's convolutions and products in bfloat16, everything else in float32."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from polyshot.runs.compiled_block import NormPoolReLU

Forward: TypeAlias = Callable[..., Any]


def train_in_bfloat16(backbone: nn.Module, fuse: bool = True) -> None:
    """Let a network compute in bfloat16 in training mode; it still takes and returns float32.

    Weights, gradients and running statistics stay in float32, and in evaluation mode nothing changes.

    Parameters
    ----------
    backbone : nn.Module
        The network; its `forward` is replaced.
    fuse : bool
        Let blocks of convolution, batch normalisation, 2x2 max-pooling and ReLU (`nn.Sequential`) compute the last
        three in one step, on the CPU. Such a block has no second derivative.
    """
    if fuse:
        for block in backbone.modules():
            if _can_be_fused(block):
                _replace_in_training(block, _fused)

    def in_bfloat16(exact: Forward, _: nn.Module, x: Tensor, *rest: Any) -> Any:
        with torch.autocast(x.device.type, torch.bfloat16):
            features = exact(x, *rest)
        return features.float()

    _replace_in_training(backbone, in_bfloat16)


def _replace_in_training(module: nn.Module, forward: Callable[..., Any]) -> None:
    exact = module.forward
    module.forward = lambda *inputs: forward(exact, module, *inputs) if module.training else exact(*inputs)


def _can_be_fused(block: nn.Module) -> bool:
    match list(block) if type(block) is nn.Sequential else []:
        case [nn.Conv2d(), nn.BatchNorm2d() as norm, nn.MaxPool2d() as pool, nn.ReLU()]:
            usual = nn.MaxPool2d(2)
            usual_windows = all(getattr(pool, name) == getattr(usual, name) for name in usual.__constants__)
            return usual_windows and norm.affine and norm.track_running_stats and norm.momentum is not None
    return False


def _fused(exact: Forward, block: nn.Sequential, x: Tensor) -> Any:
    convolution, norm, pool, relu = block
    _, n_channels, height, width = x.shape
    if n_channels == 1:  # such images are in both memory formats; with these strides the output is channels-last
        x = x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))
    z = convolution(x)
    if z.device.type == "cpu" and z.dtype == torch.bfloat16 and len(z) and min(z.shape[2:]) > 1:
        return NormPoolReLU.apply(z, norm.weight, norm.bias, norm)  # type: ignore[no-untyped-call]
    return relu(pool(norm(z)))
