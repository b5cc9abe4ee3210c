"""GPyTorch, whose import (through linear_operator) warns of torch.jit, which is an error in this test run."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch

__all__ = ["gpytorch"]
