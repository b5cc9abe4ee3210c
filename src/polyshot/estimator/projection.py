"""Features whose inner products are the covariances, for fits without an N x N matrix; chosen by cost.

The linear and the cosine kernels have features of their own, and nothing is lost. Every RBF gets Nyström's: with m
landmarks, phi(x) = k(x, landmarks) B and B B^T = K_mm^-1, which is exact for all covariances with a landmark. The
landmarks are the first m examples in the order of a hash of their features (`by_content`). So they are a random choice
that depends neither on the order of the examples nor on a seed.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.estimator.covariance import Covariance, KernelLike
from polyshot.gp import KERNELS, FactoredKernel, Kernel, KernelMatrix, feature_space_is_cheaper

_LANDMARKS = 1000
_EXAMPLES_PER_LANDMARK = 3
_RANK_TOLERANCE = 1e-10  # eigenvalues of K_mm below this share of the largest are rounding


@dataclass(frozen=True)
class Projection:
    """phi(x) with phi(x)^T phi(z) = k(x, z), or near it if there are landmarks [m, D] with a basis [m, r]."""

    covariance: Covariance
    landmarks: Float[Tensor, "m d"]
    basis: Float[Tensor, "m r"]

    @staticmethod
    def of(covariance: Covariance, X: Float[Tensor, "n d"]) -> "Projection":
        """The kernel's own features, or Nyström's from some of the examples X."""
        if has_features(covariance.kernel):
            return Projection(covariance, X[:0], X.new_empty(0, 0))
        landmarks = X[:_LANDMARKS]
        values, vectors = torch.linalg.eigh(covariance(landmarks, landmarks))
        kept = values > _RANK_TOLERANCE * values[-1]
        return Projection(covariance, landmarks, vectors[:, kept] / values[kept].sqrt())

    def __call__(self, x: Float[Tensor, "q d"]) -> Float[Tensor, "q r"]:
        """Features at scale one without the intercept."""
        return self.covariance(x, self.landmarks) @ self.basis if len(self.landmarks) else self.covariance.features(x)


def has_features(kernel: KernelLike) -> bool:
    """Whether a named kernel or kernel object has finite features of its own."""
    kind = KERNELS.find(kernel) if isinstance(kernel, str) else type(kernel)
    return issubclass(kind, Kernel) and kind.features is not Kernel.features


def n_features(kernel: KernelLike, n: int, d: int, n_way: int) -> int:
    """How many features a fit by features has; 0 where the N x N kernel matrix is cheaper, or the only way."""
    if has_features(kernel):
        return d + 1 if feature_space_is_cheaper(n, d + 1, n_way) else 0
    enough = isinstance(kernel, str | Kernel) and n >= _EXAMPLES_PER_LANDMARK * _LANDMARKS
    return _LANDMARKS + 1 if enough and feature_space_is_cheaper(n, _LANDMARKS + 1, n_way) else 0


def scaled(K: KernelMatrix, log_scale: float, constant: float) -> KernelMatrix:
    """exp(log_scale) K + constant."""
    if not isinstance(K, FactoredKernel):
        return float(np.exp(log_scale)) * K + constant
    return FactoredKernel(with_constant(np.exp(log_scale / 2) * K.phi, constant), K.each_pair)


def with_constant(phi: Float[Tensor, "q d"], constant: float) -> Float[Tensor, "q e"]:
    """One more feature, if the constant is not zero, which adds it to all covariances."""
    if constant == 0:
        return phi
    return torch.cat([phi, phi.new_full((len(phi), 1), np.sqrt(constant))], 1)
