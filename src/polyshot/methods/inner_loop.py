"""Small parts shared by methods that adapt weights to each task."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.task import Prediction

Tensors = dict[str, Tensor]


def gradient_step(
    loss: Callable[[Tensors], Tensor],
    parameters: Tensors,
    rate: float | Mapping[str, float | Tensor],
    second_order: bool = False,
) -> Tensors:
    """One gradient step at one rate or at a rate per weight; `second_order` keeps the graph of the gradient itself."""
    gradients = torch.autograd.grad(
        loss(parameters), list(parameters.values()), create_graph=second_order, materialize_grads=True
    )
    rates = rate if isinstance(rate, Mapping) else dict.fromkeys(parameters, rate)
    return {name: p - rates[name] * g for (name, p), g in zip(parameters.items(), gradients, strict=True)}


def ranks_of_appearance(y: Int[Tensor, "n"], n_way: int) -> Int[Tensor, "c"]:
    """Entry c is the rank of class c when classes are ordered by their first example in the support set.

    A method that draws noise per class works with `ranks[y]` and returns `logits[:, ranks]`. Then the same seed gives
    the same prediction however the classes are numbered.
    """
    first = (y[None, :] == torch.arange(n_way, device=y.device)[:, None]).int().argmax(1)
    return first.argsort().argsort()


def average(logits: Float[Tensor, "m q c"]) -> Prediction:
    """Average M sampled classifiers: probabilities, logits as scores, and the variance of the logits."""
    n_samples = torch.tensor(len(logits), dtype=logits.dtype, device=logits.device)
    log_probs = logits.log_softmax(-1).logsumexp(0) - n_samples.log()
    return Prediction(log_probs, logits.mean(0), logits.var(0, correction=0).mean(-1))
