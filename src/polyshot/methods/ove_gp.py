"""The one-vs-each Pólya-Gamma GP: Snell & Zemel, "Bayesian Few-Shot Classification with One-vs-Each Pólya-Gamma
Augmented Gaussian Processes", ICLR 2021.

Class logits have GP priors with a kernel on deep features; the softmax is replaced by a product of pairwise sigmoids,
whose Pólya-Gamma variables make the posterior Gaussian given them. Training maximises the marginal ("ml") or the
predictive likelihood ("pl") at the last step of short Gibbs chains; a support set is conditioned on by expectation
propagation, which is deterministic and closer to the exact posterior, or by longer chains ("gibbs", the paper's way).

Averaged over single draws of the sites, both objectives like a smaller scale of the kernel than the prediction, which
averages the draws out. So the prediction has a factor of its own (`calibrate`), learned beside the rest by its own
predictive likelihood.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from polyshot.gp import OneVsEachGP, Sites, fit_propagation, make_kernel
from polyshot.gp.objectives import Slope, scale_slope
from polyshot.gp.predictive import Rule
from polyshot.methods.base import Space
from polyshot.methods.gaussian_process import GPMethod, Objective

_EVERY = 4  # the prediction's factor learns from one episode in so many, which are enough for a single number


class OVEGP(GPMethod):
    """GP logits under the one-vs-each likelihood, by Pólya-Gamma sites."""

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        objective: Objective = "pl",
        kernel: str = "cosine",
        log_scale: float = 0.0,
        kernel_rate: float = 3e-2,
        n_chains: int = 20,
        n_steps: int = 1,
        inference: Literal["propagation", "gibbs"] = "propagation",
        test_steps: int = 50,
        slope: Slope = "sampled",
        rule: Rule = "log-sigmoid",
        calibrate: bool = True,
    ) -> None:
        super().__init__(
            space,
            backbone,
            make_kernel(kernel, log_scale=log_scale),
            objective=objective,
            rule=rule,
            n_chains=n_chains,
            n_steps=n_steps,
            kernel_rate=kernel_rate,
            slope=slope,
        )
        self.inference = inference
        self.test_steps = test_steps
        self.log_factor = nn.Parameter(torch.zeros(())) if calibrate else None

    def model(self) -> OneVsEachGP:
        """The model has no parameters of its own."""
        return OneVsEachGP()

    def prediction_scale(self) -> Tensor | float:
        """exp(log_factor), or one."""
        return 1.0 if self.log_factor is None else self.log_factor.double().exp()

    def calibration_loss(
        self, x: Tensor, y: Tensor, n_support: int, n_way: int, rngs: Sequence[np.random.Generator]
    ) -> Tensor | float:
        """Minus the queries' log-probability as it will be predicted, as a function of the factor alone."""
        if self.log_factor is None:
            return 0.0
        slopes = x.new_zeros(len(x))
        if chosen := [k for k, rng in enumerate(rngs) if rng.integers(_EVERY) == 0]:
            support, query = [(x[chosen, part], y[chosen, part]) for part in (slice(n_support), slice(n_support, None))]
            slopes[chosen] = scale_slope(
                self.model(), self.kernel, *support, *query, n_way, self.log_factor, rule=self.rule
            )
        return -slopes * (self.log_factor - self.log_factor.detach())

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The last step of the chains, or the sites of expectation propagation."""
        if self.inference == "propagation":
            return fit_propagation(self.model(), K, y, n_way).sites
        return self.last_sites(K, y, n_way, self.test_steps, rngs)
