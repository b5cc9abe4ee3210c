"""Few-shot methods behind one contract (base.py): one method a file, one line in the registry."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from polyshot.errors import InputError
from polyshot.methods.base import FewShotMethod, Predictor, Space
from polyshot.methods.options import check_options
from polyshot.methods.protonet import ProtoNet

METHODS: dict[str, type[FewShotMethod]] = {
    "protonet": ProtoNet,
}


def build_method(
    name: str, space: Space, backbone: nn.Module | None = None, options: Mapping[str, Any] | None = None
) -> FewShotMethod:
    """The method of that name with its options; `backbone` is the method's own unless given."""
    if name not in METHODS:
        raise InputError(f"no method {name!r}; there are {', '.join(METHODS)}")
    return METHODS[name](space, backbone, **check_options(name, METHODS[name], options or {}))


__all__ = ["METHODS", "FewShotMethod", "Predictor", "Space", "build_method"]
