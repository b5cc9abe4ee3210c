"""Deep kernel transfer: Patacchiola, Turner, Crowley, O'Boyle & Storkey, "Bayesian Meta-Learning for the Few-Shot
Setting via Deep Kernels", NeurIPS 2020.

Classification as regression: each class's logit is a GP observed with Gaussian noise, at +1 for the class's examples
and at -1 for all others. Posterior and marginal likelihood are exact. The kernel and a constant mean are learned by the
marginal likelihood of support and query together. The noise is fixed by default: learned, it becomes too small
for new classes. Class probabilities are the normalised Gaussian likelihood, averaged over the posterior of the logits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from polyshot.gp import KERNELS, ConstantMean, Cosine, DKTCosine, LeastSquaresGP, Sites, make_kernel
from polyshot.methods.backbones import Init
from polyshot.methods.gaussian_process import GPMethod
from polyshot.task import Space


class DKT(GPMethod):
    """Least-squares GP classification with a learned kernel.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    kernel : str
        A name in `polyshot.gp.KERNELS`.
    log_scale : float
        Where the kernel's log-scale starts.
    noise : float
        Variance of the observation noise.
    learn_noise : bool
        Whether the noise is learned; `noise` is then its start.
    kernel_rate : float
        Learning rate of the kernel's parameters, the mean and the noise.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "DKT"
    citation = (
        "Patacchiola, Turner, Crowley, O'Boyle & Storkey, \"Bayesian Meta-Learning for the Few-Shot Setting via Deep "
        'Kernels", NeurIPS 2020'
    )
    paper_options: ClassVar[Mapping[str, Any]] = {"kernel_rate": 1e-4, "init": "he-fan-out"}

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
        init: Init = "torch",
    ) -> None:
        super().__init__(
            space,
            backbone,
            make_kernel(kernel, log_scale=log_scale),
            objective="ml",
            rule="monte-carlo",
            kernel_rate=kernel_rate,
            mean=ConstantMean(),
            init=init,
        )
        self.check_positive(noise=noise)
        self.noise = noise
        self.raw_noise = nn.Parameter(torch.tensor(noise).double().expm1().log().float()) if learn_noise else None

    @classmethod
    def kernel_title(cls, options: Mapping[str, Any]) -> str:
        """The paper calls two kernels "Cosine": DKT's own in DKT's rows, and the other GPs' in theirs."""
        kernel = KERNELS.get(cls.full_options(options).get("kernel", ""))
        own = {DKTCosine: "Cosine", Cosine: "OVE's Cosine"}
        return own[kernel] if kernel in own else super().kernel_title(options)

    def model(self) -> LeastSquaresGP:
        """The model with the noise as given, or as learned so far."""
        return LeastSquaresGP(self.noise if self.raw_noise is None else softplus(self.raw_noise.double()))

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The observations as sites; nothing is drawn."""
        return self.model().sites(y, n_way)
