"""Covariances of unit size from feature vectors, by the name of a kernel or by the user's own.

"auto" is "cosine" for 100 features and more, as embeddings have, and "rbf" for fewer, where lengths carry information.
Named kernels measure from a centre and in a unit that the support set gives. For kernels of directions ("cosine",
"normalized-rbf") the features are prepared in three steps:

- square roots, if no feature is negative: activations after a ReLU, counts and pixels are then compared as by
  Hellinger's distance, where a few large entries do not drown the rest;
- unit length (a zero vector has no direction: it stays zero, similar to nothing, and is answered by the class
  frequencies);
- subtract a share N / (N + 10) of the support set's mean, which is what all classes have in common as far as N
  examples can tell; then unit length again.

Centring removes what says how frequent a class is. So the logits also have an intercept: a variance that all inputs
share, in units of the logits and not of the kernel's scale (docs/estimator-choices.md has the measurements).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.sparse import csr_array, issparse
from torch import Tensor

from polyshot.errors import InputError
from polyshot.estimator.rows import Centred, Rows, unit_sparse
from polyshot.gp import KERNELS, Cosine, DKTCosine, Kernel, make_kernel, unit_rows

KernelLike = Any  # a name, a Kernel, or a function of two arrays; `Covariance.of` refuses everything else
DIRECTIONAL = ("cosine", "dkt-cosine", "normalized-rbf")
# The RBF needs none, because its logits fall to zero far away; for the normalised RBF unit vectors are all near.
_INTERCEPTS = {"cosine": 0.5, "dkt-cosine": 0.5, "linear": 10.0}
OF_SPARSE_ROWS = ("cosine", "dkt-cosine", "linear")
_DENSE = f"sparse X is for kernel={', '.join(map(repr, OF_SPARSE_ROWS))}; use one of them, or X.toarray()"
_EXAMPLES_TO_TRUST_A_MEAN = 10.0
_FEWEST_OF_AN_EMBEDDING = 100
_MOST_FOR_A_DISTANCE = 1000
_OWN_SCALES = 20.0  # largest spread over the median one: at most 11 in embeddings, 29 and more in raw tables
_FARTHEST = 1e5  # typical distances; beyond this, rounding spoils the distances of all other rows
_SMALLEST_DISTANCE = 1e-150  # in units of the largest entry; smaller ones have squares of zero


@dataclass(frozen=True)
class Covariance:
    """k(x, z) / size, after centring and scaling; size is the mean of k(x, x) over the support set without zeros.

    unit has one number per feature; they differ only where the features are on scales of their own. intercept is a
    further variance of the logits, the same for all x and all scales.
    """

    kernel: KernelLike
    roots: bool
    centre: Float[Tensor, "d"]
    unit: Float[Tensor, "d"]
    size: float
    intercept: float

    @staticmethod
    def of(kernel: KernelLike, X: Rows, weights: Float[Tensor, "n"] | None = None) -> "Covariance":
        """Centre, unit and size from the support set; the user's own kernel gets the features as they are.

        An example of weight two counts as two examples.
        """
        weights = torch.ones(X.shape[0], dtype=torch.float64) if weights is None else weights
        kernel = resolved(kernel, X.shape[1], issparse(X))
        nothing = torch.zeros(X.shape[1], dtype=torch.float64)
        roots, centre, unit, intercept = False, nothing, torch.ones_like(nothing), 0.0
        if isinstance(kernel, str):
            make_kernel(kernel)
            if issparse(X) and kernel not in OF_SPARSE_ROWS:
                raise InputError(_DENSE)
            intercept = _INTERCEPTS.get(kernel, 0.0)
            if kernel in DIRECTIONAL:
                if not (X.nnz if issparse(X) else bool(X.any())):
                    raise InputError(
                        f'every row of X is a zero vector, which has no direction for kernel="{kernel}"; '
                        'use kernel="rbf", or check how X was computed'
                    )
                roots = bool(((X.data if issparse(X) else X) >= 0).all())
                there = torch.from_numpy(np.diff(X.indptr) > 0) if issparse(X) else X.any(-1)
                n = float(weights[there].sum())
                share = n / (n + _EXAMPLES_TO_TRUST_A_MEAN)
                directions = unit_sparse(X, roots) if issparse(X) else unit_rows(X.sqrt() if roots else X)
                centre = share * _mean(directions, weights * there)
            elif issparse(X):
                centre = _mean(X, weights)
                unit = torch.full_like(nothing, float(np.abs(X.data).max(initial=0)) or 1.0)
            else:
                # the mean of equal rows differs from them by rounding, which the unit would blow up
                centre = X[0] if bool((X[0] == X).all()) else _mean(X, weights)
                spreads = _own_scales(X - centre, weights)
                if KERNELS[kernel].stationary:
                    unit = spreads * _unit_of_distance(X, spreads, weights)
                else:
                    unit = spreads * _largest((X - centre) / spreads)
        elif issparse(X):
            raise InputError(_DENSE)
        elif isinstance(kernel, Kernel):
            kernel = deepcopy(kernel)  # the user's may change after the fit
        elif not callable(kernel):
            raise InputError(f"kernel must be a name, a polyshot kernel or a function of two arrays, not {kernel!r}")
        raw = Covariance(kernel, roots, centre, unit, 1.0, intercept)
        variances = raw.diagonal(X)
        if not bool((torch.isfinite(variances) & (variances >= 0)).all()):
            raise InputError("the kernel's diagonal holds NaN, infinity or negative numbers for the rows of X")
        positive = variances > 0
        return replace(raw, size=float(_mean(variances[positive], weights[positive])) if positive.any() else 1.0)

    @property
    def is_cosine(self) -> bool:
        """Whether it is the cosine by name, whose scale has its own prior."""
        return isinstance(self.kernel, str) and issubclass(KERNELS[self.kernel], (Cosine, DKTCosine))

    @property
    def fades(self) -> bool:
        """Whether it is a stationary kernel by name, whose logits all fade far from the examples."""
        return isinstance(self.kernel, str) and KERNELS[self.kernel].stationary

    def __call__(self, x: Rows, z: Rows) -> Float[Tensor, "q n"]:
        """Covariance of every row of x with every row of z."""
        if issparse(x):
            inner = self._centred(x).times(self._centred(z), self.centre.numpy())
            return torch.from_numpy(inner) * (self._factor() / self.size)
        inputs = self.inputs(x)
        return self._evaluated(inputs, inputs if z is x else self.inputs(z)) / self.size

    def features(self, x: Float[Tensor, "q d"]) -> Float[Tensor, "q e"]:
        """Vectors whose inner products are the covariances, for kernels that have them."""
        kernel = self._kernel()
        assert isinstance(kernel, Kernel)
        with torch.no_grad(), _blamed_on_the_kernel():
            return kernel.features(self.inputs(x)).double() / float(np.sqrt(self.size))

    def diagonal(self, x: Rows) -> Float[Tensor, "q"]:
        """Variance of every row of x."""
        if issparse(x):
            return torch.from_numpy(self._centred(x).squares(self.centre.numpy())) * (self._factor() / self.size)
        x = self.inputs(x)
        kernel = self._kernel()
        if isinstance(kernel, Kernel):
            with torch.no_grad(), _blamed_on_the_kernel():
                return kernel.diagonal(x).double() / self.size
        return torch.cat([self._evaluated(row[None], row[None]) for row in x]).reshape(-1) / self.size

    def _centred(self, x: csr_array) -> Centred:
        if self.kernel in DIRECTIONAL:
            return Centred.directions(unit_sparse(x, self.roots), self.centre.numpy())
        return Centred.of(x, self.centre.numpy(), float(self.unit[0]))  # sparse features share one unit

    def _factor(self) -> float:
        """What a kernel of inner products multiplies those of its inputs by."""
        with torch.no_grad():
            return float(
                make_kernel(self.kernel).double().diagonal(torch.eye(1, len(self.centre), dtype=torch.float64))
            )

    def _kernel(self) -> Callable[[Any, Any], Any]:
        return make_kernel(self.kernel).double() if isinstance(self.kernel, str) else self.kernel

    def _evaluated(self, x: Tensor, z: Tensor) -> Tensor:
        kernel = self._kernel()
        with torch.no_grad(), _blamed_on_the_kernel():
            if isinstance(kernel, Kernel):
                K: Tensor = (kernel(x) if z is x else kernel(x, z)).double()
            else:
                K = torch.as_tensor(np.asarray(kernel(x.numpy(), z.numpy()), dtype=np.float64))
        if K.shape != (len(x), len(z)):
            raise InputError(
                f"the kernel returned the shape {tuple(K.shape)} for {len(x)} and {len(z)} rows; "
                f"it must return {(len(x), len(z))}"
            )
        return K

    def inputs(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The rows as the kernel is given them."""
        if not isinstance(self.kernel, str):
            return x
        if self.kernel in DIRECTIONAL:
            x = unit_rows(x.sign() * x.abs().sqrt() if self.roots else x)
            return x.addcmul_(self.centre, x.any(-1, keepdim=True).to(x), value=-1)
        return (x - self.centre) / self.unit


def _own_scales(X: Tensor, weights: Tensor) -> Tensor:
    """The spread of each feature, if they differ as in a table of measurements; otherwise ones, as for embeddings."""
    most = _largest(X)
    spreads = most * _mean((X / most).square(), weights).sqrt()
    there = spreads > 0
    if not bool(there.any()) or float(spreads.max()) <= _OWN_SCALES * float(spreads[there].median()):
        return torch.ones_like(spreads)
    return torch.where(there, spreads, 1.0)


def resolved(kernel: KernelLike, n_features: int, sparse: bool) -> KernelLike:
    """What "auto" stands for; every other kernel is itself."""
    if isinstance(kernel, str) and kernel == "auto":
        return "cosine" if sparse or n_features >= _FEWEST_OF_AN_EMBEDDING else "rbf"
    return kernel


def _mean(x: Rows, weights: Tensor) -> Tensor:
    total = torch.from_numpy(x.T @ weights.numpy()) if issparse(x) else weights @ x
    return total / weights.sum()


def out_of_reach(kernel: KernelLike, X: Float[Tensor, "n d"]) -> Bool[Tensor, "n"]:
    """The rows that lie so far from all others that no fit with this kernel could tell the others apart."""
    if not isinstance(kernel, str) or not KERNELS[resolved(kernel, X.shape[1], sparse=False)].stationary:
        return torch.zeros(len(X), dtype=torch.bool)
    weights = torch.ones(len(X), dtype=torch.float64)
    X = _from_the_median(X, _own_scales(X - _mean(X, weights), weights))
    return X.abs().amax(1) > _FARTHEST * _typical_distance(X, weights)


def _unit_of_distance(X: Tensor, spreads: Tensor, weights: Tensor) -> float:
    """The typical distance per root of a feature; a row far beyond it is refused."""
    scaled = _from_the_median(X, spreads)
    typical, farthest = _typical_distance(scaled, weights), scaled.abs().amax(1)
    if float(farthest.max()) > _FARTHEST * typical:
        row = X[farthest.argmax()]
        raise InputError(
            f"a row of X lies {float(farthest.max()) / typical:.0e} typical distances from the others, beyond what the "
            f"RBF kernel can resolve; remove it or rescale the features (it begins with {row[0]:.3g})"
        )
    return typical / float(np.sqrt(X.shape[1]))


def _from_the_median(X: Tensor, spreads: Tensor) -> Tensor:
    """One row far away moves the mean, from which the others no longer differ, but not the median."""
    return (X - X.median(0).values) / spreads


def _typical_distance(X: Tensor, weights: Tensor) -> float:
    """Median distance of different rows among the first thousand; one if all rows are equal."""
    X, weights = X[:_MOST_FOR_A_DISTANCE], weights[:_MOST_FOR_A_DISTANCE]
    unit = _largest(X)
    distances = torch.pdist(X / unit)
    i, j = torch.triu_indices(len(X), len(X), 1)
    there = distances > 0
    if not bool(there.all()):
        there = torch.pdist(X, float("inf")) > 0  # the squares of small differences are zero
    if not bool(there.any()):
        return 1.0
    positive, order = distances[there].clamp_min(_SMALLEST_DISTANCE).sort()
    total = (weights[i] * weights[j])[there][order].cumsum(0)  # of pairs at most so far apart
    return unit * float(positive[int((total < total[-1] / 2).sum())])


def _largest(X: Tensor) -> float:
    """The largest entry, one if all are zero: in this unit squares neither overflow nor underflow."""
    return float(X.abs().max()) or 1.0


@contextmanager
def _blamed_on_the_kernel() -> Iterator[None]:
    """Errors inside a kernel, which may be the user's own, as an InputError that says where they come from."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the kernel failed with {type(error).__name__}: {error}") from error
