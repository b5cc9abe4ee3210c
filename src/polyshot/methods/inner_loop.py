"""Small parts that several methods with an inner loop share."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyshot.errors import InputError
from polyshot.methods.base import feature_shape
from polyshot.task import Prediction, Space

Tensors = dict[str, Tensor]


def n_features(backbone: nn.Module, space: Space) -> int:
    """The number of features of a backbone that gives vectors."""
    shape = feature_shape(backbone, space)
    if len(shape) != 1:
        raise InputError(f"a linear last layer needs a backbone that gives vectors, this one gives {list(shape)}")
    return shape[0]


def gradient_step(
    loss: Callable[[Tensors], Tensor],
    parameters: Tensors,
    rate: float | Mapping[str, float | Tensor],
    second_order: bool = False,
) -> Tensors:
    """One step down the loss, at one rate or a rate a weight; `second_order` keeps the graph of the gradient itself."""
    gradients = torch.autograd.grad(
        loss(parameters), list(parameters.values()), create_graph=second_order, materialize_grads=True
    )
    rates = rate if isinstance(rate, Mapping) else dict.fromkeys(parameters, rate)
    return {name: p - rates[name] * g for (name, p), g in zip(parameters.items(), gradients, strict=True)}


def ranks_of_appearance(y: Int[Tensor, "n"], n_way: int) -> Int[Tensor, "c"]:
    """Entry c is the place of class c among the classes in the order in which the support set first shows them.

    A method that draws noise a class works on `ranks[y]` and gives back `logits[:, ranks]`: so the same seed gives the
    same answer whatever the classes are called.
    """
    first = (y[None, :] == torch.arange(n_way, device=y.device)[:, None]).int().argmax(1)
    return first.argsort().argsort()


def average(logits: Float[Tensor, "m q c"]) -> Prediction:
    """The mean of the samples' probabilities, and of their logits as scores, with the variance of these."""
    n_samples = torch.tensor(len(logits), dtype=logits.dtype, device=logits.device)
    log_probs = logits.log_softmax(-1).logsumexp(0) - n_samples.log()
    return Prediction(log_probs, logits.mean(0), logits.var(0, correction=0).mean(-1))


def check_positive(method: str, **values: float | int) -> None:
    """Rates and counts must be above zero."""
    for name, value in values.items():
        if not value > 0:
            raise InputError(f"{method}'s {name} must be above 0, not {value}")
