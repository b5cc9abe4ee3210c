"""The one-vs-each Pólya-Gamma GP: Snell & Zemel, "Bayesian Few-Shot Classification with One-vs-Each Pólya-Gamma
Augmented Gaussian Processes", ICLR 2021.

Class logits have GP priors with a kernel on deep features; the softmax is replaced by a product of pairwise sigmoids,
whose Pólya-Gamma variables make the posterior Gaussian given them. Training maximises the marginal ("ml") or the
predictive likelihood ("pl") at the last step of short Gibbs chains; a support set is conditioned on by expectation
propagation, which is deterministic and closer to the exact posterior, or by longer chains ("gibbs", the paper's way).

Training takes one step. From a draw of the prior, as in Algorithm 1, that is no draw of the posterior: where examples
differ most in what tells nothing of their class, as photographs do, "ml" then finds every scale of the kernel too
small, and it grows without end. So the chains of "ml" start at the prior's mean: their sites then have the
distribution p(omega) of the prior, and the average of log p(Y | X, omega) is a lower bound of
log p(Y | X) by Jensen's inequality.

An objective's best scale is not the prediction's: that of "ml" is far smaller, and the network is surer of the classes
that it was trained on than of others. So the prediction has a factor of its own (`calibrate`), the one under which the
queries of validation episodes are most probable.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from polyshot.errors import InputError
from polyshot.gp import (
    Average,
    OneVsEachGP,
    Rule,
    Sites,
    Slope,
    Start,
    climb,
    fit_propagation,
    make_kernel,
    propagation_start,
    variational_start,
)
from polyshot.methods.gaussian_process import GPMethod, Objective
from polyshot.system.settings import check_choices
from polyshot.task import Episode, Space

StartName = Literal["prior", "mean", "variational", "propagation"]
_STARTS: dict[str, Start] = {
    "prior": "prior",
    "mean": "mean",
    "variational": variational_start,
    "propagation": propagation_start,
}
_STEP, _REACH, _LIMIT = 0.4, 20, 8.0  # of the search for the logarithm of the prediction's factor


class OVEGP(GPMethod):
    """GP logits under the one-vs-each likelihood, by Pólya-Gamma sites."""

    log_factor: Tensor | None

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
        average: Average = "probability",
        inference: Literal["propagation", "gibbs"] = "propagation",
        test_steps: int = 50,
        slope: Slope = "sampled",
        start: StartName = "mean",
        rule: Rule = "log-sigmoid",
        calibrate: bool = True,
    ) -> None:
        check_choices("ove-gp", type(self), average=average, inference=inference, rule=rule, slope=slope, start=start)
        super().__init__(
            space,
            backbone,
            make_kernel(kernel, log_scale=log_scale),
            objective=objective,
            rule=rule,
            n_chains=n_chains,
            n_steps=n_steps,
            kernel_rate=kernel_rate,
            average=average,
            slope=slope,
            start=_STARTS[start],
        )
        self.inference = inference
        self.test_steps = test_steps
        self.register_buffer("log_factor", torch.zeros(()) if calibrate else None)

    def model(self) -> OneVsEachGP:
        """The model has no parameters of its own."""
        return OneVsEachGP()

    def prediction_scale(self) -> Tensor | float:
        """exp(log_factor), or one."""
        return 1.0 if self.log_factor is None else self.log_factor.double().exp()

    def calibrate(self, episodes: Sequence[Episode]) -> None:
        """Climb from the factor there is to the one under which the episodes' queries are most probable."""
        if self.log_factor is None:
            return
        factor, start = self.log_factor, float(self.log_factor)

        def set_factor(step: float) -> None:
            factor.fill_(min(_LIMIT, max(-_LIMIT, start + _STEP * step)))

        def likelihood(step: int) -> float:
            set_factor(float(step))
            try:
                predictions = self.predict_episodes(episodes, range(len(episodes)))
            except InputError:  # a scale beyond double precision
                return -1e9
            pairs = zip(predictions, episodes, strict=True)
            return float(torch.stack([p.log_probs.gather(-1, e.query.y[:, None]).mean() for p, e in pairs]).mean())

        set_factor(climb(likelihood, _REACH))

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The last step of the chains, or the sites of expectation propagation."""
        if self.inference == "propagation":
            return fit_propagation(self.model(), K, y, n_way).sites
        return self.last_sites(K, y, n_way, self.test_steps, rngs)
