"""Tensors to arrays for the compiled loops and for numpy's generators, and back."""

import numpy as np
import torch
from torch import Tensor


def as_array(x: Tensor) -> np.ndarray:
    """A contiguous array of the tensor's values."""
    return np.ascontiguousarray(x.detach().cpu().numpy())


def as_tensor(x: np.ndarray) -> Tensor:
    """A tensor of the array's values in torch's own memory, which begins at a multiple of 64 bytes.

    The last bit of a matrix product can depend on where its factors begin, which for numpy's memory is different from
    process to process.
    """
    return torch.from_numpy(x).clone()
