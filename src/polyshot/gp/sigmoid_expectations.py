"""E[sigmoid(x)] and E[log sigmoid(x)] for Gaussian x, in closed form.

The paper uses Gauss-Hermite quadrature, whose error reaches several percent once the standard deviation of x exceeds
the width of the sigmoid. Here the logistic distribution is written as a mixture of normals (Monahan & Stefanski 1992).
Both expectations then have a closed form at any mean and variance, with less work than 20 nodes. Accuracy: E[sigmoid]
to 2e-8, E[log sigmoid] to 1e-7; log E[sigmoid] to 0.02 at worst, where it is below -20.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.compiled.expectations import expected_log_sigmoids, log_expected_sigmoids
from polyshot.gp.compiled.threads import in_threads
from polyshot.gp.shapes import AnyFloats

# sigmoid(x) = sum_k p_k Phi(s_k x) to 1.3e-8 for all x (minimax fit; the p_k sum to one).
MIXTURE_P = np.array(
    (
        0.003548876277896673,
        0.05468716418699312,
        0.20545227910513655,
        0.33501985509268495,
        0.27366500560962087,
        0.10526494523203242,
        0.020441233512455394,
        0.0019206409831799723,
    )
)
MIXTURE_S = np.array(
    (
        0.25199662496899483,
        0.33354430439563987,
        0.43709190262924263,
        0.5709280437600096,
        0.738335190674238,
        0.9343464509716165,
        1.1425263081423458,
        1.39702485267006,
    )
)


def log_expected_sigmoid(mean: AnyFloats, variance: AnyFloats) -> AnyFloats:
    """log E[sigmoid(x)] for x ~ N(mean, variance), elementwise and differentiable."""
    result: Tensor = _Expectation.apply(mean, variance, log_expected_sigmoids)  # type: ignore[no-untyped-call]
    return result


def expected_log_sigmoid(mean: AnyFloats, variance: AnyFloats) -> AnyFloats:
    """E[log sigmoid(x)] for x ~ N(mean, variance), elementwise and differentiable."""
    result: Tensor = _Expectation.apply(mean, variance, expected_log_sigmoids)  # type: ignore[no-untyped-call]
    return result


def log_expected_sigmoid_slopes(mean: AnyFloats, variance: AnyFloats) -> tuple[AnyFloats, AnyFloats, AnyFloats]:
    """log E[sigmoid(x)] and its derivatives with respect to the mean and the variance."""
    return _evaluate(log_expected_sigmoids, mean, variance, slopes=True)


class _Expectation(torch.autograd.Function):
    """An expectation under N(mean, variance) with its derivatives, all from one compiled pass."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor, compiled: Callable[..., int]) -> Tensor:
        value, *slopes = _evaluate(compiled, mean, variance, slopes=any(ctx.needs_input_grad))
        ctx.save_for_backward(*slopes)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        by_mean, by_variance = ctx.saved_tensors
        return grad * by_mean, grad * by_variance, None


def _evaluate(
    compiled: Callable[..., int], mean: Tensor, variance: Tensor, slopes: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Value and derivatives (empty without `slopes`) from a compiled loop over the entries."""
    m, v = as_array(mean.double()).ravel(), as_array(variance.double()).ravel()
    value = np.empty_like(m)
    by_mean, by_variance = np.empty_like(m if slopes else m[:0]), np.empty_like(m if slopes else m[:0])
    in_threads(
        lambda first, last: compiled(m, v, MIXTURE_P, MIXTURE_S, first, last, value, by_mean, by_variance), len(m), 400
    )
    shape = mean.shape if slopes else torch.Size([0])
    return (
        as_tensor(value).to(mean).reshape(mean.shape),
        as_tensor(by_mean).to(mean).reshape(shape),
        as_tensor(by_variance).to(mean).reshape(shape),
    )
