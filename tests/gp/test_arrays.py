import numpy as np
import pytest
import torch

from polyshot.gp import as_array, as_tensor


@pytest.mark.parametrize("offset", [0, 8, 16, 40])
def test_a_product_does_not_depend_on_where_numpys_memory_begins(offset: int) -> None:
    values = np.random.default_rng(0).standard_normal((50, 9))
    memory = np.empty(values.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    moved = memory[start : start + values.nbytes].view(np.float64).reshape(values.shape)
    moved[:] = values
    tensor = as_tensor(moved)
    assert tensor.data_ptr() % 64 == 0
    assert torch.equal(tensor @ tensor.mT, as_tensor(values) @ as_tensor(values).mT)


def test_arrays_and_tensors_hold_the_same_values() -> None:
    x = torch.arange(6.0).reshape(2, 3).mT
    assert as_array(x).flags.c_contiguous
    assert torch.equal(as_tensor(as_array(x)), x)
