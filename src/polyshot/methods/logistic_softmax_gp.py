"""The logistic-softmax GP: Galy-Fajou, Wenzel, Donner & Opper, "Multi-Class Gaussian Process Classification Made
Conjugate: Efficient Inference via Data Augmentation", UAI 2019, as Snell & Zemel (2021) take it to few-shot learning.

Class logits have GP priors; the softmax's exponentials are replaced by sigmoids, for which three augmentations (Gamma,
Poisson, Pólya-Gamma) make the posterior Gaussian. Trained by the same objectives and chains as the one-vs-each GP; the
prior mean is one learned constant, because the likelihood is not invariant to the logits' common level.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from polyshot.gp import Average, ConstantMean, LogisticSoftmaxGP, Rule, Sites, make_kernel
from polyshot.methods.gaussian_process import GPMethod, Objective
from polyshot.system.settings import check_choices
from polyshot.task import Space


class LogisticSoftmax(GPMethod):
    """GP logits under the logistic-softmax likelihood, by Gibbs chains."""

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
        )
        check_choices("logistic-softmax-gp", type(self), average=average, rule=rule)
        self.test_steps = test_steps

    def model(self) -> LogisticSoftmaxGP:
        """The model has no parameters of its own."""
        return LogisticSoftmaxGP()

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        """The last step of the chains."""
        return self.last_sites(K, y, n_way, self.test_steps, rngs)
