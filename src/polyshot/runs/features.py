"""Embed every example once, for methods whose backbone does not change with the support set."""

import copy

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from polyshot.data.dataset import ClassSet
from polyshot.errors import InputError
from polyshot.methods.base import FewShotMethod, evaluating

_ROWS = 256


def on_features(
    method: FewShotMethod, class_set: ClassSet, rows: Int[Tensor, "n"] | None = None
) -> tuple[FewShotMethod, ClassSet]:
    """Return the method without its backbone, and the class set as features of that backbone.

    The predictions for an episode stay the same, up to rounding. The class set's transform must not be random. Only the
    given rows are embedded, if any are given; the others are then NaN.
    """
    if not method.embeds_once:
        raise InputError(f"{type(method).__name__} adapts its backbone to each support set; its features are not fixed")
    device = next((p.device for p in method.parameters()), torch.device("cpu"))
    rng = np.random.default_rng(0)
    x = class_set.x if rows is None else class_set.x[rows]
    with evaluating(method):
        features = torch.cat(
            [method.backbone(class_set.transform(part, rng).to(device)) for part in torch.split(x, _ROWS)]
        )
    if rows is not None:
        known, features = features, features.new_full((len(class_set.x), *features.shape[1:]), torch.nan)
        features[rows] = known
    head = copy.copy(method)
    head._modules = dict(method._modules)
    head.backbone = nn.Identity()
    return head, class_set.embedded(features)
