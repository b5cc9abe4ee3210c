"""Check the arrays that metrics are given; an InputError says what is wrong and what is expected."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.errors import InputError

ArrayOrTensor: TypeAlias = npt.NDArray[Any] | Tensor


def to_numpy(x: ArrayOrTensor) -> npt.NDArray[Any]:
    """Convert a tensor to a NumPy array of the same precision (bfloat16, which NumPy lacks, to float32)."""
    if not isinstance(x, Tensor):
        return np.asarray(x)
    x = x.detach().cpu()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def check_probs(probs: ArrayOrTensor, labels: ArrayOrTensor) -> tuple[Float[np.ndarray, "n c"], Int[np.ndarray, " n"]]:
    """Return valid probabilities as float64 and valid labels as int64."""
    raw, y = to_numpy(probs), to_numpy(labels)
    if raw.ndim != 2 or y.shape != raw.shape[:1]:
        raise InputError(f"probabilities must be [n, C] and labels [n]; the shapes are {raw.shape} and {y.shape}")
    if raw.size == 0:
        raise InputError(f"probabilities of shape {raw.shape} are empty; at least one example and class are needed")
    p = raw.astype(np.float64)
    if np.isnan(p).any():
        raise InputError(f"probabilities contain NaN, first in row {int(np.isnan(p).any(1).argmax())}")
    if (p < 0).any():
        raise InputError(f"probabilities must not be negative; the smallest is {p.min():g} (logits? use softmax first)")
    off = np.abs(p.sum(1) - 1)
    tolerance = 1e-6 if raw.dtype.kind != "f" or raw.dtype.itemsize >= 8 else 1e-3
    if off.max() > tolerance:
        row = int(off.argmax())
        raise InputError(
            f"each row of probabilities must sum to 1 within {tolerance:g}; row {row} sums to {p[row].sum():.9g}"
        )
    if y.dtype.kind not in "iuf" or (y != np.round(y)).any():
        raise InputError(f"labels must be whole numbers in 0..{p.shape[1] - 1}; they are {y.dtype}, some not whole")
    if y.min() < 0 or y.max() >= p.shape[1]:
        raise InputError(f"labels must lie in 0..{p.shape[1] - 1}; they span {y.min()}..{y.max()}")
    return p, y.astype(np.int64)


def check_log_probs(
    log_probs: ArrayOrTensor, labels: ArrayOrTensor
) -> tuple[Float[np.ndarray, "n c"], Int[np.ndarray, " n"]]:
    """Return valid log-probabilities as float64 and valid labels as int64; -inf is a probability of 0."""
    raw = to_numpy(log_probs)
    with np.errstate(over="ignore"):
        _, y = check_probs(np.exp(raw), labels)
    return raw.astype(np.float64), y


def finite_array(name: str, values: ArrayOrTensor, ndim: int) -> npt.NDArray[np.float64]:
    """Return the values as float64 if they are finite, not empty, and have `ndim` dimensions."""
    x = to_numpy(values).astype(np.float64)
    if x.ndim != ndim or x.size == 0:
        raise InputError(
            f"{name} must have {ndim} dimension{'s' * (ndim > 1)} and not be empty; the shape is {x.shape}"
        )
    if not np.isfinite(x).all():
        raise InputError(f"{name} contain NaN or infinity")
    return x


def check_level(level: float) -> None:
    """Refuse a confidence level outside 0 to 1."""
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95; it is {level}")


def check_flags(
    name: str, values: ArrayOrTensor, flag_name: str, flags: ArrayOrTensor, ndim: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the values and one flag for each; infinite values are valid, because only their order counts."""
    x, flag = to_numpy(values).astype(np.float64), to_numpy(flags)
    if x.ndim != ndim or x.size == 0 or flag.shape != x.shape:
        raise InputError(
            f"{name} and {flag_name} must have the same shape of {ndim} dimension{'s' * (ndim > 1)} and not be empty; "
            f"the shapes are {x.shape} and {flag.shape}"
        )
    if np.isnan(x).any():
        raise InputError(f"{name} contains NaN")
    if not ((flag == 0) | (flag == 1)).all():
        raise InputError(f"{flag_name} must be True or False (1 or 0) throughout")
    return x, flag.astype(bool)


def check_scores(
    scores: ArrayOrTensor, is_outside: ArrayOrTensor, ndim: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the scores and which are from outside; each episode (the last dimension) must have both kinds."""
    s, outside = check_flags("scores", scores, "is_outside", is_outside, ndim)
    one_kind = outside.all(-1) | ~outside.any(-1)
    if one_kind.any():
        where = f" in episode {int(one_kind.argmax())}" if ndim == 2 else ""
        raise InputError(f"AUROC needs examples from inside and from outside; is_outside has only one kind{where}")
    return s, outside
