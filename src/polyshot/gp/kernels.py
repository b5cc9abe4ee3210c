"""Covariance functions k(x, x') over feature vectors, with learnable log-scales (Section 4.6, Appendix C).

A kernel is called as `kernel(x)` for K [..., N, N] or `kernel(x, z)` for K_star [..., N, M]. To add one, subclass
`Kernel`, set `title`, and write `features` if the kernel is an inner product of finite vectors, or `forward` and
`diagonal` if it is not. Then register it:

    KERNELS.register("my-kernel", MyKernel)

or offer it from an installed package through the entry-point group "polyshot.kernels". The contract tests run on every
registered kernel.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from polyshot.errors import InputError
from polyshot.gp.shapes import Features
from polyshot.gp.validation import check_features
from polyshot.system.registry import Registry


class Kernel(nn.Module):
    """Base class of all kernels.

    Parameters
    ----------
    log_scale : float
        Initial value of the learnable log-scale; the output scale is exp(log_scale).

    Attributes
    ----------
    title : str
        The kernel's name in tables and figures.
    stationary : bool
        Whether k(x, z) is a function of x - z that fades with its length, so that the unit of the features matters.
    """

    title: ClassVar[str]
    stationary: ClassVar[bool] = False

    def __init__(self, log_scale: float = 0.0) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(float(log_scale)))

    def forward(self, x: Features, z: Float[Tensor, "*batch m d"] | None = None) -> Float[Tensor, "*batch n m"]:
        """Covariance of every row of `x` with every row of `z`; without `z`, with every row of `x`."""
        check_features(x, x if z is None else z)
        phi = self.features(x)
        return phi @ (phi if z is None else self.features(z)).mT

    def diagonal(self, x: Features) -> Float[Tensor, "*batch n"]:
        """k(x_i, x_i) for every row."""
        return self.features(x).square().sum(-1)

    def features(self, x: Features) -> Float[Tensor, "*batch n e"]:
        """Feature map phi with k(x, z) = phi(x)^T phi(z), for kernels that have a finite one."""
        raise InputError(f"{type(self).__name__} has no finite feature map")


class Cosine(Kernel):
    """exp(alpha) times the cosine similarity; the paper's main kernel."""

    title = "Cosine"

    def features(self, x: Features) -> Features:
        """Unit vectors times exp(alpha / 2)."""
        return torch.exp(self.log_scale / 2) * unit_rows(x)


class Linear(Kernel):
    """exp(alpha) / D times the inner product."""

    title = "Linear"

    def features(self, x: Features) -> Features:
        """The vectors times exp(alpha / 2) / sqrt(D)."""
        return torch.exp(self.log_scale / 2) / math.sqrt(x.shape[-1]) * x


class RBF(Kernel):
    """exp(alpha) exp(-|x - z|^2 / (2 D exp(l)^2)).

    Parameters
    ----------
    log_scale : float
        Initial alpha.
    log_lengthscale : float
        Initial l.
    """

    title = "RBF"
    stationary = True

    def __init__(self, log_scale: float = 0.0, log_lengthscale: float = 0.0) -> None:
        super().__init__(log_scale)
        self.log_lengthscale = nn.Parameter(torch.tensor(float(log_lengthscale)))

    def forward(self, x: Features, z: Float[Tensor, "*batch m d"] | None = None) -> Float[Tensor, "*batch n m"]:
        """Covariance of every row of `x` with every row of `z`; without `z`, with every row of `x`."""
        check_features(x, x if z is None else z)
        alone = z is None
        x, z = self.inputs(x), self.inputs(x if z is None else z)
        # Squared distances from inner products, measured from a common origin so that distant data lose no digits. The
        # origin comes from z alone, so that no row of x affects another.
        origin = z.mean(-2, keepdim=True).detach()
        x, z = x - origin, z - origin
        squared = x.square().sum(-1)[..., :, None] + z.square().sum(-1)[..., None, :] - 2 * x @ z.mT
        if alone:  # exactly zero, because a short lengthscale would make the rounding error visible
            squared = squared * (1 - torch.eye(x.shape[-2], dtype=x.dtype, device=x.device))
        return torch.exp(self.log_scale - squared.clamp(min=0) / 2 * torch.exp(-2 * self.log_lengthscale))

    def diagonal(self, x: Features) -> Float[Tensor, "*batch n"]:
        """exp(alpha) for every row."""
        return torch.exp(self.log_scale).expand(x.shape[:-1])

    def inputs(self, x: Features) -> Features:
        """The points between which distances are measured: x / sqrt(D)."""
        return x / math.sqrt(x.shape[-1])


class NormalizedRBF(RBF):
    """RBF between unit vectors, without the 1 / D."""

    title = "RBF (normalized)"
    stationary = False

    def inputs(self, x: Features) -> Features:
        """The points between which distances are measured: x / |x|."""
        return unit_rows(x)


class CosineRBF(RBF):
    """exp(gamma) times the cosine similarity, plus the RBF: training learns how much of each.

    Parameters
    ----------
    log_scale : float
        Initial alpha of the RBF.
    log_lengthscale : float
        Initial l of the RBF.
    log_cosine : float
        Initial gamma.
    """

    title = "Cosine + RBF"
    stationary = False

    def __init__(self, log_scale: float = 0.0, log_lengthscale: float = 0.0, log_cosine: float = 0.0) -> None:
        super().__init__(log_scale, log_lengthscale)
        self.log_cosine = nn.Parameter(torch.tensor(float(log_cosine)))

    def forward(self, x: Features, z: Float[Tensor, "*batch m d"] | None = None) -> Float[Tensor, "*batch n m"]:
        """Covariance of every row of `x` with every row of `z`; without `z`, with every row of `x`."""
        rbf, unit = super().forward(x, z), unit_rows(x)
        return rbf + torch.exp(self.log_cosine) * unit @ (unit if z is None else unit_rows(z)).mT

    def diagonal(self, x: Features) -> Float[Tensor, "*batch n"]:
        """exp(alpha) + exp(gamma) for every row that is not zero."""
        return super().diagonal(x) + torch.exp(self.log_cosine) * unit_rows(x).square().sum(-1)


class DKTCosine(Kernel):
    """softplus(alpha) softplus(nu) times the cosine similarity, as in Deep Kernel Transfer.

    Parameters
    ----------
    log_scale : float
        Initial alpha; zero in DKT.
    nu : float
        Initial nu; zero in DKT.
    """

    title = "DKT's Cosine"

    def __init__(self, log_scale: float = 0.0, nu: float = 0.0) -> None:
        super().__init__(log_scale)
        self.nu = nn.Parameter(torch.tensor(float(nu)))

    def features(self, x: Features) -> Features:
        """Unit vectors times the square root of both scales."""
        return torch.sqrt(softplus(self.log_scale) * softplus(self.nu)) * unit_rows(x)


KERNELS: Registry[type[Kernel]] = Registry(
    "kernel",
    {
        "cosine": Cosine,
        "linear": Linear,
        "rbf": RBF,
        "normalized-rbf": NormalizedRBF,
        "cosine-rbf": CosineRBF,
        "dkt-cosine": DKTCosine,
    },
    group="polyshot.kernels",
)


def make_kernel(name: str, **options: float) -> Kernel:
    """Make a kernel by its registered name.

    Parameters
    ----------
    name : str
        A name in `KERNELS`.
    **options : float
        Initial values of the kernel's parameters.
    """
    return KERNELS.find(name)(**options)


class ConstantMean(nn.Module):
    """A prior mean that is one learned number for all classes and inputs.

    Parameters
    ----------
    value : float
        The initial value.
    """

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(float(value)))

    def forward(self) -> Float[Tensor, ""]:
        """The constant."""
        return self.value


def unit_rows(x: Features) -> Features:
    """Divide every row by its norm. A zero row, which has no direction, stays zero with zero gradient."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    numbers = torch.finfo(x.dtype)
    if not bool(((norm > numbers.tiny**0.5) & (norm < numbers.max**0.5)).all()):  # squares may over- or underflow
        x = x / x.detach().abs().amax(-1, keepdim=True).clamp(min=numbers.tiny)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(norm > 0, norm, torch.inf)
