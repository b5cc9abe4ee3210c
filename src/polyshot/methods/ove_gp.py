"""The one-vs-each Pólya-Gamma GP: Snell & Zemel, "Bayesian Few-Shot Classification with One-vs-Each Pólya-Gamma
Augmented Gaussian Processes", ICLR 2021.

Class logits have GP priors with a kernel on deep features; the softmax is replaced by a product of pairwise sigmoids,
whose Pólya-Gamma variables make the posterior Gaussian given them. Training maximises the marginal ("ml") or the
predictive likelihood ("pl") at the last step of short Gibbs chains; a support set is conditioned on by expectation
propagation, which is deterministic and closer to the exact posterior, or by longer chains ("gibbs", the paper's way).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Tensor, nn

from polyshot.gp import OneVsEachGP, Sites, fit_propagation, gibbs, make_kernel
from polyshot.gp.predictive import Rule
from polyshot.methods.base import Space
from polyshot.methods.gaussian_process import GPMethod, Objective


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
        rule: Rule = "log-sigmoid",
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
        )
        self.inference = inference
        self.test_steps = test_steps

    def model(self) -> OneVsEachGP:
        """The model has no parameters of its own."""
        return OneVsEachGP()

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The last step of the chains, or the sites of expectation propagation."""
        if self.inference == "propagation":
            return fit_propagation(self.model(), K, y, n_way).sites
        return gibbs(
            self.model(), K, y, n_way, n_chains=self.n_chains, n_steps=self.test_steps, latent=False, seed=list(rngs)
        ).draws
