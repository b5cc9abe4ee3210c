"""Convolution and linear layers whose weights are independent Gaussians, for ABML."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear


class GaussianLayer(nn.Module):
    """A layer with weights N(layer.weight, exp(log_variance)); its bias is a point estimate.

    Inside `sampling` each row gets its own draw: linear layers draw their outputs (local reparameterisation, Kingma et
    al. 2015), convolutions flip the signs of one draw (flipout, Wen et al. 2018). Outside it the layer uses the means
    of its weights, or the weights that torch.func.functional_call puts in their place.
    """

    def __init__(self, layer: nn.Conv2d | nn.Linear, log_variance: float) -> None:
        super().__init__()
        self.layer = layer
        self.log_variance = nn.Parameter(torch.full_like(layer.weight, log_variance))
        self.generator: torch.Generator | None = None

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """The layer's output; noisy inside `sampling`."""
        mean: Tensor = self.layer(x)
        if self.generator is None:
            return mean
        if isinstance(self.layer, nn.Conv2d):
            return self._flipout(self.layer, x, mean)
        return self._local_noise(x, mean)

    def _local_noise(self, x: Tensor, mean: Tensor) -> Tensor:
        variance: Tensor = linear(x.square(), self.log_variance.exp())
        # the square root has no gradient at 0, which is where a row of zeros would put it
        return mean + (variance + 1e-8).sqrt() * normal_like(mean, self.generator)

    def _flipout(self, layer: nn.Conv2d, x: Tensor, mean: Tensor) -> Tensor:
        w = (0.5 * self.log_variance).exp() * normal_like(self.log_variance, self.generator)
        flipped: Tensor = layer._conv_forward(x * self._signs(len(x), x.shape[1]), w, None)
        return torch.addcmul(mean, flipped, self._signs(len(x), flipped.shape[1]))

    def _signs(self, n: int, channels: int) -> Tensor:
        device = self.log_variance.device
        bits = torch.randint(2, (n, channels, 1, 1), generator=self.generator, device=device)
        return 2 * bits.to(self.log_variance) - 1


def with_gaussian_weights(module: nn.Module, log_variance: float) -> nn.Module:
    """A copy of the module with every Conv2d and Linear made Gaussian; their weights become the means."""
    module = copy.deepcopy(module)
    if isinstance(module, nn.Conv2d | nn.Linear):
        return GaussianLayer(module, log_variance)
    for name, child in module.named_children():
        setattr(module, name, with_gaussian_weights(child, log_variance))
    return module


@contextmanager
def sampling(module: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Inside, the module's Gaussian layers draw their weights with the generator."""
    layers = [m for m in module.modules() if isinstance(m, GaussianLayer)]
    try:
        for layer in layers:
            layer.generator = generator
        yield
    finally:
        for layer in layers:
            layer.generator = None


def normal_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal draws of x's shape."""
    return torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)


def gaussian_kl(
    mean: Float[Tensor, "*shape"],
    log_variance: Float[Tensor, "*shape"],
    prior_mean: Float[Tensor, "*shape"],
    prior_log_variance: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    """KL(N(mean, exp(log_variance)) || the prior), summed."""
    difference = log_variance - prior_log_variance
    quadratic = (mean - prior_mean).square() * (-prior_log_variance).exp()
    return 0.5 * (difference.exp() - difference - 1 + quadratic).sum()
