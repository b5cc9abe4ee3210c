"""The logistic-softmax GP: Galy-Fajou, Wenzel, Donner & Opper, "Multi-Class Gaussian Process Classification Made
Conjugate: Efficient Inference via Data Augmentation", UAI 2019, as Snell & Zemel (2021) take it to few-shot learning.

Class logits have GP priors. Sigmoids replace the softmax's exponentials, and three augmentations (Gamma, Poisson,
Pólya-Gamma) make the posterior Gaussian. Objectives and chains are those of the one-vs-each GP. The prior mean is one
learned constant, because the likelihood changes when a constant is added to all logits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from polyshot.gp import Average, ConstantMean, LogisticSoftmaxGP, Rule, Sites, make_kernel
from polyshot.methods.backbones import Init
from polyshot.methods.gaussian_process import GPMethod, Objective
from polyshot.task import Space


class LogisticSoftmaxMethod(GPMethod):
    """GP logits under the logistic-softmax likelihood, by Gibbs chains.

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
        Learning rate of the kernel's parameters and the mean.
    n_chains, n_steps : int
        Gibbs chains, and their steps in training.
    average : {"probability", "log", "score"}
        What is averaged over the chains in objective "pl": probabilities, the true class's log-probabilities, or the
        log-probabilities of all classes, which are then normalised once, also in prediction.
    test_steps : int
        Steps of the chains in prediction; the last one is used.
    rule : {"sigmoid", "log-sigmoid", "monte-carlo"}
        How the Gaussian of a query's logits becomes class probabilities.
    init : {"torch", "he-fan-out"}
        How the convolutions of the default backbone start: as torch's default, or as in the paper's public code.
    """

    title = "Logistic Softmax GP"
    citation = (
        'Galy-Fajou, Wenzel, Donner & Opper, "Multi-Class Gaussian Process Classification Made Conjugate: Efficient '
        'Inference via Data Augmentation", UAI 2019'
    )
    paper_options: ClassVar[Mapping[str, Any]] = {"average": "score", "init": "he-fan-out"}

    def __init__(
        self,
        space: Space,
        backbone: nn.Module | None = None,
        *,
        objective: Objective = "pl",
        kernel: str = "cosine",
        log_scale: float = 0.0,
        kernel_rate: float = 1e-3,
        n_chains: int = 20,
        n_steps: int = 1,
        average: Average = "log",
        test_steps: int = 50,
        rule: Rule = "log-sigmoid",
        init: Init = "torch",
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
            average=average,
            mean=ConstantMean(),
            init=init,
        )
        self.test_steps = test_steps

    def model(self) -> LogisticSoftmaxGP:
        """The model has no parameters of its own."""
        return LogisticSoftmaxGP()

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The last step of the chains."""
        return self.last_sites(K, y, n_way, self.test_steps, rngs)
