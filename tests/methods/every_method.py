"""Every registered method with each of its objectives, as test parameters, and a builder of small ones."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from polyshot.methods import METHODS, FewShotMethod, build_method
from polyshot.methods.gaussian_process import GPMethod
from polyshot.system.settings import keyword_settings
from polyshot.task import Space

# Their chains and draws depend on how the classes are numbered: permuted classes give the same result only on average.
SAMPLED = {name for name, method in METHODS.items() if issubclass(method, GPMethod)}
# Keeps the tests quick, for the methods that have such an option; none changes what is tested.
FEWER = {"n_passes": 10, "test_steps": 4, "n_particles": 4, "n_samples": 2}


def rows() -> Iterator[Any]:
    """Every method, once per objective."""
    for name, method in METHODS.items():
        known = keyword_settings(method)
        fewer = {option: value for option, value in FEWER.items() if option in known}
        for choice in known["objective"].choices if "objective" in known else ("",):
            options = {**fewer, "objective": choice} if choice else fewer
            yield pytest.param(name, options, id=f"{name}-{choice}".rstrip("-"))


every_method = pytest.mark.parametrize(("name", "options"), list(rows()))


def build(name: str, options: dict[str, Any], space: Space, backbone: nn.Module | None = None) -> FewShotMethod:
    torch.manual_seed(0)
    return build_method(name, space, backbone, options)
