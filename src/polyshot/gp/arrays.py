"""Conversion between tensors and the arrays that the compiled loops and numpy's generators use."""

import numpy as np
import torch
from torch import Tensor


def as_array(x: Tensor) -> np.ndarray:
    """Return a contiguous array with the tensor's values."""
    return np.ascontiguousarray(x.detach().cpu().numpy())


def as_tensor(x: np.ndarray) -> Tensor:
    """Copy an array into torch's own memory, which starts at a multiple of 64 bytes.

    The last bit of a matrix product can depend on where its factors start in memory. For numpy's memory that differs
    from process to process.
    """
    return torch.from_numpy(np.require(x, requirements="W")).clone()  # torch warns of arrays that it may not write to
