"""From feature vectors to a covariance of unit size, by a kernel's name or by your own function.

"auto" is "cosine" for 100 features and more, as embeddings have, and "rbf" for fewer, whose lengths say something too.
Names measure from a centre and in a unit that the support set gives. For the directions of embeddings ("cosine",
"normalized-rbf"):

- roots, if no feature is negative: activations after a ReLU, counts and pixels are then compared as by
  Hellinger's distance, where a few large entries do not drown the rest;
- unit length (a zero vector has no direction: it stays zero, akin to nothing, and how frequent the classes are
  answers it);
- less a share N / (N + 10) of the mean of the support set, which is what all classes have in common as far as N
  examples can tell; and unit length again.

Centring takes away what says how frequent a class is, so the logits have an intercept besides: a variance that all
inputs share, in units of the logits and not of the kernel's scale (docs/estimator.md has what was measured).
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp import Kernel, make_kernel, unit_rows

KernelLike = Any  # a name, a Kernel, or a function of two arrays: `of` says what is wrong with anything else
DIRECTIONAL = ("cosine", "dkt-cosine", "normalized-rbf")
# A far class of the RBF's is balanced by logits that fall to zero; unit vectors are all near for the normalised one.
_INTERCEPTS = {"cosine": 0.5, "dkt-cosine": 0.5, "linear": 10.0}
_EXAMPLES_TO_TRUST_A_MEAN = 10.0
_FEWEST_OF_AN_EMBEDDING = 100
_MOST_FOR_A_DISTANCE = 1000


@dataclass(frozen=True)
class Covariance:
    """k(x, z) / size, with the mean of k(x, x) over the support set (zeros aside) as its size, after centre and unit.

    intercept is the variance that a logit has besides, whatever x and however large the scale.
    """

    kernel: KernelLike
    roots: bool
    centre: Float[Tensor, "d"]
    unit: float
    size: float
    intercept: float

    @staticmethod
    def of(kernel: KernelLike, X: Float[Tensor, "n d"]) -> "Covariance":
        """Centre, unit and size as the support set has them; your own kernel takes the features as they are."""
        if isinstance(kernel, str) and kernel == "auto":
            kernel = "cosine" if X.shape[1] >= _FEWEST_OF_AN_EMBEDDING else "rbf"
        nothing = torch.zeros(X.shape[1], dtype=X.dtype)
        roots, centre, unit, intercept = False, nothing, 1.0, 0.0
        if isinstance(kernel, str):
            make_kernel(kernel)
            intercept = _INTERCEPTS.get(kernel, 0.0)
            if kernel in DIRECTIONAL:
                if not bool(X.any()):
                    raise InputError(f'every row of X is a zero vector, which has no direction for kernel="{kernel}"')
                roots = bool((X >= 0).all())
                there = X[X.any(-1)]
                share = len(there) / (len(there) + _EXAMPLES_TO_TRUST_A_MEAN)
                centre = share * unit_rows(there.sqrt() if roots else there).mean(0)
            else:
                centre = X.mean(0)
                rows = X - centre
                unit = _typical_distance(rows) / np.sqrt(X.shape[1]) if kernel == "rbf" else _largest(rows)
        elif isinstance(kernel, Kernel):
            kernel = deepcopy(kernel)  # yours may change after the fit
        elif not callable(kernel):
            raise InputError(f"a kernel is a name, a polyshot kernel or a function of two arrays, not {kernel!r}")
        raw = Covariance(kernel, roots, centre, unit, 1.0, intercept)
        variances = raw.diagonal(X)
        if not bool((torch.isfinite(variances) & (variances >= 0)).all()):
            raise InputError("the kernel's diagonal holds NaN, infinity or negative numbers for the rows of X")
        positive = variances[variances > 0]
        return replace(raw, size=float(positive.mean()) if len(positive) else 1.0)

    @property
    def is_cosine(self) -> bool:
        """Whether it is the cosine by name, whose scale has a prior of its own."""
        return isinstance(self.kernel, str) and self.kernel in ("cosine", "dkt-cosine")

    def __call__(self, x: Float[Tensor, "q d"], z: Float[Tensor, "n d"]) -> Float[Tensor, "q n"]:
        """Covariance of every row of x with every row of z."""
        return self._evaluated(self._inputs(x), self._inputs(z)) / self.size

    def diagonal(self, x: Float[Tensor, "q d"]) -> Float[Tensor, "q"]:
        """Variance of every row of x."""
        x = self._inputs(x)
        kernel = self._kernel()
        if isinstance(kernel, Kernel):
            with torch.no_grad():
                return kernel.diagonal(x).double() / self.size
        return torch.cat([self._evaluated(row[None], row[None]) for row in x]).reshape(-1) / self.size

    def _kernel(self) -> Callable[[Any, Any], Any]:
        return make_kernel(self.kernel).double() if isinstance(self.kernel, str) else self.kernel

    def _evaluated(self, x: Tensor, z: Tensor) -> Tensor:
        kernel = self._kernel()
        if isinstance(kernel, Kernel):
            with torch.no_grad():
                K: Tensor = kernel(x, z).double()
                return K
        K = torch.as_tensor(np.asarray(kernel(x.numpy(), z.numpy()), dtype=np.float64))
        if K.shape != (len(x), len(z)):
            raise InputError(f"the kernel returned the shape {tuple(K.shape)} for {len(x)} and {len(z)} rows")
        return K

    def _inputs(self, x: Tensor) -> Tensor:
        if not isinstance(self.kernel, str):
            return x
        if self.kernel in DIRECTIONAL:
            x = unit_rows(x.sign() * x.abs().sqrt() if self.roots else x)
            return x - self.centre * (x != 0).any(-1, keepdim=True)
        return (x - self.centre) / self.unit


def _typical_distance(X: Tensor) -> float:
    """Median distance of different rows, of the first thousand if there are more; one if there is none."""
    unit = _largest(X)
    distances = torch.pdist(X[:_MOST_FOR_A_DISTANCE] / unit)
    positive = distances[distances > 0]
    return unit * float(positive.median()) if len(positive) else 1.0


def _largest(X: Tensor) -> float:
    """The largest entry, one if all are zero: in this unit squares neither over- nor underflow."""
    return float(X.abs().max()) or 1.0
