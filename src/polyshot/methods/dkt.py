"""Deep kernel transfer: Patacchiola, Turner, Crowley, O'Boyle & Storkey, "Bayesian Meta-Learning for the Few-Shot
Setting via Deep Kernels", NeurIPS 2020.

Classification as regression: each class's logit is a GP observed with Gaussian noise at +1 for its examples and -1 for
all others. The posterior and the marginal likelihood are exact; the kernel and the constant mean are learned by the
latter, over support and query together. The noise stays as it is given: learned, it falls below what new classes bear.
Class probabilities are the normalised Gaussian likelihood, averaged over the posterior of the logits.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from polyshot.errors import InputError
from polyshot.gp import ConstantMean, LeastSquaresGP, Sites, make_kernel
from polyshot.methods.gaussian_process import GPMethod
from polyshot.task import Space


class DKT(GPMethod):
    """Least-squares GP classification with a learned kernel."""

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        kernel: str = "dkt-cosine",
        log_scale: float = 0.0,
        noise: float = 0.1,
        learn_noise: bool = False,
        kernel_rate: float = 3e-2,
    ) -> None:
        super().__init__(
            space,
            backbone,
            make_kernel(kernel, log_scale=log_scale),
            objective="ml",
            rule="monte-carlo",
            n_chains=1,
            n_steps=1,
            kernel_rate=kernel_rate,
            mean=ConstantMean(),
        )
        if not noise > 0:
            raise InputError(f"the noise variance must be positive, not {noise}")
        self.noise = noise
        self.raw_noise = nn.Parameter(torch.tensor(noise).double().expm1().log().float()) if learn_noise else None

    def model(self) -> LeastSquaresGP:
        """The model with the noise given, or learned so far."""
        return LeastSquaresGP(self.noise if self.raw_noise is None else softplus(self.raw_noise.double()))

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The observations, which are the same for every draw."""
        return self.model().sites(y, n_way)
