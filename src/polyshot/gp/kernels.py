"""Covariance functions k(x, x') over feature vectors, with learnable log-scales (Section 4.6, Appendix C).

A kernel is called as `kernel(x)` for K [..., N, N] or `kernel(x, z)` for K_star [..., N, M]. To add one,
subclass `Kernel`, write `forward` and `diagonal` (and `features` where the kernel is an inner product of
finite vectors) and put it into `KERNELS`; the contract tests pick it up from there.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from polyshot.errors import InputError
from polyshot.gp.validation import check_features


class Kernel(nn.Module):
    """Base of all kernels; the output scale is exp(log_scale)."""

    def __init__(self, log_scale: float = 0.0) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(float(log_scale)))

    def forward(
        self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"] | None = None
    ) -> Float[Tensor, "*batch n m"]:
        """Covariance of every row of `x` with every row of `z` (of `x` itself if it is not given)."""
        check_features(x, x if z is None else z)
        phi = self.features(x)
        return phi @ (phi if z is None else self.features(z)).mT

    def diagonal(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n"]:
        """k(x_i, x_i) for every row."""
        return self.features(x).square().sum(-1)

    def features(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n e"]:
        """Feature map phi with k(x, z) = phi(x)^T phi(z); only for kernels that have a finite one."""
        raise InputError(f"{type(self).__name__} has no finite feature map")


class Cosine(Kernel):
    """exp(alpha) times the cosine similarity; the paper's main kernel."""

    def features(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """Unit vectors times exp(alpha / 2)."""
        return torch.exp(self.log_scale / 2) * unit_rows(x)


class Linear(Kernel):
    """exp(alpha) / D times the inner product."""

    def features(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """The vectors times exp(alpha / 2) / sqrt(D)."""
        return torch.exp(self.log_scale / 2) / math.sqrt(x.shape[-1]) * x


class RBF(Kernel):
    """exp(alpha) exp(-|x - z|^2 / (2 D exp(l)^2))."""

    def __init__(self, log_scale: float = 0.0, log_lengthscale: float = 0.0) -> None:
        super().__init__(log_scale)
        self.log_lengthscale = nn.Parameter(torch.tensor(float(log_lengthscale)))

    def forward(
        self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"] | None = None
    ) -> Float[Tensor, "*batch n m"]:
        """Covariance of every row of `x` with every row of `z` (of `x` itself if it is not given)."""
        check_features(x, x if z is None else z)
        alone = z is None
        x, z = self.inputs(x), self.inputs(x if z is None else z)
        # Squared distances by the inner product, from a common origin so that far-off data lose no digits; that of z,
        # so that no row of x matters to another.
        origin = z.mean(-2, keepdim=True).detach()
        x, z = x - origin, z - origin
        squared = x.square().sum(-1)[..., :, None] + z.square().sum(-1)[..., None, :] - 2 * x @ z.mT
        if alone:  # zero but for rounding, which a short lengthscale would show
            squared = squared * (1 - torch.eye(x.shape[-2], dtype=x.dtype, device=x.device))
        return torch.exp(self.log_scale - squared.clamp(min=0) / 2 * torch.exp(-2 * self.log_lengthscale))

    def diagonal(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n"]:
        """exp(alpha) for every row."""
        return torch.exp(self.log_scale).expand(x.shape[:-1])

    def inputs(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """What distances are measured between: x / sqrt(D)."""
        return x / math.sqrt(x.shape[-1])


class NormalizedRBF(RBF):
    """RBF between unit vectors, without the 1 / D."""

    def inputs(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """What distances are measured between: x / |x|."""
        return unit_rows(x)


class DKTCosine(Kernel):
    """softplus(alpha) softplus(nu) times the cosine similarity, as Deep Kernel Transfer writes it.

    `log_scale` is the paper's alpha; both parameters start at zero as in DKT.
    """

    def __init__(self, log_scale: float = 0.0, nu: float = 0.0) -> None:
        super().__init__(log_scale)
        self.nu = nn.Parameter(torch.tensor(float(nu)))

    def features(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """Unit vectors times the root of both scales."""
        return torch.sqrt(softplus(self.log_scale) * softplus(self.nu)) * unit_rows(x)


KERNELS: dict[str, type[Kernel]] = {
    "cosine": Cosine,
    "linear": Linear,
    "rbf": RBF,
    "normalized-rbf": NormalizedRBF,
    "dkt-cosine": DKTCosine,
}


def make_kernel(name: str, **options: float) -> Kernel:
    """The kernel of that name, with its start values."""
    if name not in KERNELS:
        raise InputError(f"unknown kernel {name!r}; there are {', '.join(KERNELS)}")
    return KERNELS[name](**options)


class ConstantMean(nn.Module):
    """A prior mean that is one learned number for all classes and inputs (zero until it is learned)."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(float(value)))

    def forward(self) -> Float[Tensor, ""]:
        """The constant."""
        return self.value


def unit_rows(x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
    """Rows divided by their norm. A zero row, which has no direction, stays zero with zero gradient."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    numbers = torch.finfo(x.dtype)
    if not bool(((norm > numbers.tiny**0.5) & (norm < numbers.max**0.5)).all()):  # squares may over- or underflow
        x = x / x.detach().abs().amax(-1, keepdim=True).clamp(min=numbers.tiny)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(norm > 0, norm, torch.inf)
