"""Names for the shapes of the tensors in polyshot.gp.

Letters: any leading batch of tasks, m chains, n support examples, c classes, q queries, d features. Within one call a
letter always stands for the same number. The tests check this on every call.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

Features = Float[Tensor, "*batch n d"]
QueryFeatures = Float[Tensor, "*batch q d"]
Labels = Int[Tensor, "*batch n"]
QueryLabels = Int[Tensor, "*batch q"]

KernelMatrix = Float[Tensor, "*batch n n"]
KernelRoot = Float[Tensor, "*batch n e"]
"""root with root root^T = K."""
QueryCovariances = Float[Tensor, "*batch q n"]
QueryVariances = Float[Tensor, "*batch q"]

PerTask = Float[Tensor, "*batch"]
PerChain = Float[Tensor, "*batch m"]
PerClass = Float[Tensor, "*batch n c"]
"""One number per example and class."""
SiteArray = Float[Tensor, "*batch m n c"]
"""One number per chain, example and class: latent logits f, contrasts psi, omega, kappa."""
ChainMatrices = Float[Tensor, "*batch m n n"]
ClassMatrices = Float[Tensor, "*batch m c n n"]

LogitVectors = Float[Tensor, "*batch c"]
QueryLogits = Float[Tensor, "*batch m q c"]
QueryLogitCovariances = Float[Tensor, "*batch m q c c"]
NormalPoints = Float[Tensor, "*batch m s c"]
"""Standard normal points, s per chain."""

AnyFloats = Float[Tensor, "*shape"]
Mean = float | Float[Tensor, "..."]
"""A prior mean: a number, or a tensor that broadcasts to [*batch, n, c]."""
Generators = Sequence[np.random.Generator]
"""One generator per task of the flattened batch."""
