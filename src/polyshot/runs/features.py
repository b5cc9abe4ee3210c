"""Embed every example once, for methods whose backbone does not change with the support set."""

import copy

import numpy as np
import torch
from torch import nn

from polyshot.data.dataset import ClassSet
from polyshot.errors import InputError
from polyshot.methods.base import FewShotMethod, evaluating

_ROWS = 256


def on_features(method: FewShotMethod, class_set: ClassSet) -> tuple[FewShotMethod, ClassSet]:
    """Return the method without its backbone, and the class set as features of that backbone.

    The predictions for an episode stay the same, up to rounding. The class set's transform must not be random.
    """
    if not method.embeds_once:
        raise InputError(f"{type(method).__name__} adapts its backbone to each support set; its features are not fixed")
    device = next((p.device for p in method.parameters()), torch.device("cpu"))
    rng = np.random.default_rng(0)
    with evaluating(method):
        parts = [method.backbone(class_set.transform(x, rng).to(device)) for x in torch.split(class_set.x, _ROWS)]
    head = copy.copy(method)
    head._modules = dict(method._modules)
    head.backbone = nn.Identity()
    return head, class_set.embedded(torch.cat(parts))
