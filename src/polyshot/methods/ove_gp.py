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

Two scores say whether a query is in none of the classes. "sum" is that of the paper's public code: minus the largest
sum over a class's comparisons of E[log sigmoid]. "extra-class" adds to it what one more class without examples says,
which competes with the others twice. Under an RBF kernel on the features, which sees the length that the cosine throws
away, its logit is compared with the largest other logit (`extra_class_score`). Under the method's own kernel its sum is
compared with the largest other sum, and the difference counts 0.3 times.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyshot.errors import InputError
from polyshot.gp import (
    RBF,
    Average,
    Logits,
    OneVsEachGP,
    Rule,
    Sites,
    SiteSource,
    Slope,
    Start,
    climb,
    expected_log_sigmoid,
    fit_propagation,
    make_kernel,
    propagation_start,
    variational_start,
)
from polyshot.methods.backbones import Init
from polyshot.methods.gaussian_process import GPMethod, Objective, OutlierScore
from polyshot.task import Episode, Space

StartName = Literal["prior", "mean", "variational", "propagation"]
_STARTS: dict[str, Start] = {
    "prior": "prior",
    "mean": "mean",
    "variational": variational_start,
    "propagation": propagation_start,
}
_TOLERANCE = 1e-2  # of expectation propagation, for scores
_OWN_SHARE = 0.3  # of the own kernel's difference in the score "extra-class"
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
    sites : {"chains", "propagation"}
        What training conditions on: the last step of Gibbs chains, as in the paper, or expectation propagation. The
        latter is deterministic and costs less.
    n_chains, n_steps : int
        Gibbs chains, and their steps in training.
    average : {"probability", "log", "score"}
        What is averaged over the chains in objective "pl": probabilities, the true class's log-probabilities, or the
        log-probabilities of all classes, which are then normalised once, also in prediction.
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
    outlier : {"extra-class", "sum", "none"}
        The score for "none of these classes"; "none" saves its cost.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "OVE PG GP"
    citation = (
        'Snell & Zemel, "Bayesian Few-Shot Classification with One-vs-Each Pólya-Gamma Augmented Gaussian Processes", '
        "ICLR 2021"
    )
    paper_options: ClassVar[Mapping[str, Any]] = {
        "kernel": "cosine",
        "kernel_rate": 1e-3,
        "average": "score",
        "inference": "gibbs",
        "slope": "exact",
        "start": "prior",
        "calibrate": False,
        "outlier": "sum",
        "init": "he-fan-out",
    }

    log_factor: Tensor | None

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        objective: Objective = "pl",
        kernel: str = "cosine-rbf",
        log_scale: float = 0.0,
        kernel_rate: float = 3e-2,
        sites: SiteSource = "chains",
        n_chains: int = 20,
        n_steps: int = 1,
        average: Average = "probability",
        inference: Literal["propagation", "gibbs"] = "propagation",
        test_steps: int = 50,
        slope: Slope = "sampled",
        start: StartName = "mean",
        rule: Rule = "log-sigmoid",
        calibrate: bool = True,
        outlier: Literal["extra-class", "sum", "none"] = "extra-class",
        init: Init = "torch",
    ) -> None:
        self.check_choices(inference=inference, start=start, outlier=outlier)
        super().__init__(
            space,
            backbone,
            make_kernel(kernel, log_scale=log_scale),
            objective=objective,
            rule=rule,
            n_chains=n_chains,
            n_steps=n_steps,
            kernel_rate=kernel_rate,
            sites=sites,
            average=average,
            slope=slope,
            start=_STARTS[start],
            init=init,
        )
        self.inference = inference
        self.test_steps = test_steps
        self.outlier = outlier
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
        factor, start, outlier = self.log_factor, float(self.log_factor), self.outlier

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

        self.outlier = "none"  # not needed here
        set_factor(climb(likelihood, _REACH))
        self.outlier = outlier

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The sites of expectation propagation, or the last step of the chains."""
        if self.inference == "propagation":
            return fit_propagation(self.model(), K, y, n_way).sites
        return self.last_sites(K, y, n_way, self.test_steps, rngs)

    def outlier_score(self, x: Tensor, y: Tensor, K: Tensor, sites: Sites, n_way: int) -> OutlierScore | None:
        """The score `outlier`, as a function of the queries' features."""
        if self.outlier == "none":
            return None

        def sums(query: Tensor, sites: Sites) -> Tensor:
            return expected_log_likelihoods(self.model().query(K, y, sites, *self.query_covariance(query, x)))

        def of_the_paper(query: Tensor) -> Tensor:
            return -sums(query, sites).amax(-1)

        if self.outlier == "sum":
            return of_the_paper
        with_extra = fit_propagation(self.model(), K, y, n_way + 1, tolerance=_TOLERANCE).sites
        by_length = extra_class_score(x, y, n_way)

        def of_the_extra_class(query: Tensor) -> Tensor:
            return by_length(query) + _OWN_SHARE * _last_minus_largest(sums(query, with_extra))

        return lambda query: of_the_paper(query) + of_the_extra_class(query)


def expected_log_likelihoods(logits: Logits) -> Float[Tensor, "*batch q c"]:
    """Sum over c' != c of E[log sigmoid(f_c - f_c')], averaged over the chains."""
    mean, covariance = logits.mean, logits.covariance
    own = covariance.diagonal(dim1=-2, dim2=-1)
    variance = own[..., :, None] + own[..., None, :] - 2 * covariance
    each = expected_log_sigmoid(mean[..., :, None] - mean[..., None, :], variance.clamp(min=0))
    return (each.sum(-1) - each.diagonal(dim1=-2, dim2=-1)).mean(-3)


def extra_class_score(
    x: Float[Tensor, "*batch n d"], y: Int[Tensor, "*batch n"], n_way: int
) -> Callable[[Tensor], Tensor]:
    """The logit of one more class without examples minus the largest other one, as a function of queries' features.

    By expectation propagation under the kernel exp(1 - |x - x'|^2 / m), m the median of the support set's squared
    distances.
    """
    first, second = torch.triu_indices(x.shape[-2], x.shape[-2], 1, device=x.device)
    squared = torch.cdist(x, x).square()[..., first, second]
    median = squared.median(-1).values.clamp(min=torch.finfo(x.dtype).tiny)[..., None, None]
    stretch = (2 * x.shape[-1] / median).sqrt()  # undoes the kernel's 1 / (2 D)
    kernel, inputs = RBF(log_scale=1.0), stretch * x
    K = kernel(inputs)
    sites = fit_propagation(OneVsEachGP(), K, y, n_way + 1, tolerance=_TOLERANCE).sites
    conditional = OneVsEachGP().condition(K, y, sites)

    def score(query: Tensor) -> Tensor:
        return _last_minus_largest(conditional.query_mean(kernel(stretch * query, inputs)).squeeze(-3))

    return score


def _last_minus_largest(scores: Float[Tensor, "*batch q c1"]) -> Float[Tensor, "*batch q"]:
    """The last class's score minus the largest of the others."""
    return scores[..., -1] - scores[..., :-1].amax(-1)
