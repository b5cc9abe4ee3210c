"""Mixed precision: the network's convolutions and products in bfloat16, everything else in float32."""

from typing import Any

import torch
from torch import Tensor, nn


def train_in_bfloat16(backbone: nn.Module) -> None:
    """Let a network compute in bfloat16 in training mode; it still takes and returns float32.

    Weights, gradients and running statistics stay in float32, and in evaluation mode nothing changes.
    """
    exact = backbone.forward

    def forward(x: Tensor, *rest: Any) -> Any:
        if not backbone.training:
            return exact(x, *rest)
        with torch.autocast(x.device.type, torch.bfloat16):
            features = exact(x, *rest)
        return features.float()

    backbone.forward = forward
