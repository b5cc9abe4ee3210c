"""The one-vs-each Pólya-Gamma GP: Snell & Zemel, "Bayesian Few-Shot Classification with One-vs-Each Pólya-Gamma
Augmented Gaussian Processes", ICLR 2021.

Class logits have GP priors with a kernel on deep features. A product of pairwise sigmoids replaces the softmax; given
Pólya-Gamma variables, the posterior is Gaussian. Training maximises the marginal likelihood ("ml") or the predictive
likelihood ("pl") at the last step of short Gibbs chains. Prediction conditions on the support set by expectation
propagation, which is deterministic and closer to the exact posterior, or by longer chains ("gibbs", as in the paper).

Training takes one Gibbs step. From a draw of the prior, as in Algorithm 1, one step does not give a draw of the
posterior. Where examples differ most in features that say nothing about their class, as photographs do, "ml" then finds
every scale of the kernel too small, and the scale grows without bound. So the chains of "ml" start at the prior's mean.
Their sites then have the prior distribution p(omega), and the average of log p(Y | X, omega) is a lower bound of
log p(Y | X) by Jensen's inequality.

The scale that is best for the objective is not the best for prediction. That of "ml" is far smaller, and the network is
more confident about its training classes than about others. So prediction has its own factor on the kernel
(`calibrate`): the one under which the queries of validation episodes are most probable.
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
from polyshot.task import Episode, Space

StartName = Literal["prior", "mean", "variational", "propagation"]
_STARTS: dict[str, Start] = {
    "prior": "prior",
    "mean": "mean",
    "variational": variational_start,
    "propagation": propagation_start,
}
_STEP, _REACH, _LIMIT = 0.4, 20, 8.0  # of the search for the log of the prediction's factor


class OVEGP(GPMethod):
    """GP logits under the one-vs-each likelihood, by Pólya-Gamma augmentation.

    Parameters
    ----------
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        Returns one vector per example. By default Conv4 for images.
    objective : {"ml", "pl"}
        What training maximises: the marginal likelihood of support and query together, or the predictive likelihood of
        the queries given the support set.
    kernel : str
        A name in `polyshot.gp.KERNELS`.
    log_scale : float
        Where the kernel's log-scale starts.
    kernel_rate : float
        Learning rate of the kernel's parameters.
    n_chains, n_steps : int
        Gibbs chains, and their steps in training.
    average : {"probability", "log"}
        What is averaged over the chains in objective "pl".
    inference : {"propagation", "gibbs"}
        How prediction conditions on a support set: expectation propagation, or Gibbs chains.
    test_steps : int
        Steps of the chains of inference "gibbs"; the last one is used.
    slope : {"exact", "sampled"}
        The derivative of the log-determinant in objective "ml": exact, or an unbiased estimate that is faster.
    start : {"prior", "mean", "variational", "propagation"}
        Where the chains of objective "ml" start: at a draw or the mean of the prior, or at an approximate posterior.
    rule : {"sigmoid", "log-sigmoid", "monte-carlo"}
        How the Gaussian of a query's logits becomes class probabilities.
    calibrate : bool
        Whether prediction has its own factor on the kernel, chosen by validation episodes.
    """

    title = "OVE PG GP"
    citation = (
        'Snell & Zemel, "Bayesian Few-Shot Classification with One-vs-Each Pólya-Gamma Augmented Gaussian Processes", '
        "ICLR 2021"
    )

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
        self.check_choices(inference=inference, start=start)
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
        """Search, from the current factor, for the one under which the episodes' queries are most probable."""
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
        """The sites of expectation propagation, or the last step of the chains."""
        if self.inference == "propagation":
            return fit_propagation(self.model(), K, y, n_way).sites
        return self.last_sites(K, y, n_way, self.test_steps, rngs)
