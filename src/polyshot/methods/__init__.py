"""Few-shot methods behind one contract (base.py): one method a file, one line in the registry."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from polyshot.errors import InputError
from polyshot.methods.abml import ABML
from polyshot.methods.base import FewShotMethod, Predictor
from polyshot.methods.baseline_plus_plus import BaselinePlusPlus
from polyshot.methods.bayesian_maml import BayesianMAML, ChaserBayesianMAML
from polyshot.methods.dkt import DKT
from polyshot.methods.feature_transfer import FeatureTransfer
from polyshot.methods.logistic_softmax_gp import LogisticSoftmax
from polyshot.methods.maml import MAML
from polyshot.methods.matchingnet import MatchingNet
from polyshot.methods.ove_gp import OVEGP
from polyshot.methods.protonet import ProtoNet
from polyshot.methods.relationnet import RelationNet
from polyshot.system.settings import keyword_settings, read_settings
from polyshot.task import Space

METHODS: dict[str, type[FewShotMethod]] = {
    "feature-transfer": FeatureTransfer,
    "baseline++": BaselinePlusPlus,
    "matchingnet": MatchingNet,
    "protonet": ProtoNet,
    "relationnet": RelationNet,
    "maml": MAML,
    "dkt": DKT,
    "bayesian-maml": BayesianMAML,
    "bayesian-maml-chaser": ChaserBayesianMAML,
    "abml": ABML,
    "logistic-softmax-gp": LogisticSoftmax,
    "ove-gp": OVEGP,
}


def build_method(
    name: str, space: Space, backbone: nn.Module | None = None, options: Mapping[str, Any] | None = None
) -> FewShotMethod:
    """The method of that name with its options; `backbone` is the method's own unless given."""
    if name not in METHODS:
        raise InputError(f"no method {name!r}; there are {', '.join(METHODS)}")
    return METHODS[name](
        space, backbone, **read_settings(name, keyword_settings(METHODS[name]), options or {}, from_text=True)
    )


__all__ = ["METHODS", "FewShotMethod", "Predictor", "build_method"]
