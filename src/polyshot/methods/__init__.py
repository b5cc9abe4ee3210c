"""Few-shot methods behind one contract (base.py): one file per method, one line each in the registry."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from polyshot.methods.abml import ABML
from polyshot.methods.base import FewShotMethod, Predictor
from polyshot.methods.baseline_plus_plus import BaselinePlusPlus
from polyshot.methods.bayesian_maml import BayesianMAML, ChaserBayesianMAML
from polyshot.methods.cdkt import CDKT
from polyshot.methods.dkt import DKT
from polyshot.methods.feature_transfer import FeatureTransfer
from polyshot.methods.logistic_softmax_gp import LogisticSoftmaxMethod
from polyshot.methods.maml import MAML
from polyshot.methods.matchingnet import MatchingNet
from polyshot.methods.ove_gp import OVEGP
from polyshot.methods.protonet import ProtoNet
from polyshot.methods.relationnet import RelationNet
from polyshot.system.registry import Registry
from polyshot.system.settings import keyword_settings, read_settings
from polyshot.task import Space

METHODS: Registry[type[FewShotMethod]] = Registry(
    "method",
    {
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
        "logistic-softmax-gp": LogisticSoftmaxMethod,
        "cdkt": CDKT,
        "ove-gp": OVEGP,
    },
    "polyshot.methods",
)


def build_method(
    name: str, space: Space, backbone: nn.Module | None = None, options: Mapping[str, Any] | None = None
) -> FewShotMethod:
    """A new, untrained method.

    Parameters
    ----------
    name : str
        A name in `METHODS`; `polyshot methods` lists them.
    space : Space
        The shape of one example and the number of training classes.
    backbone : nn.Module, optional
        The method's own default if not given.
    options : mapping, optional
        The method's options; numbers and truth values may be text, as on a command line.

    Returns
    -------
    FewShotMethod
    """
    method = METHODS.find(name)
    return method(space, backbone, **read_settings(name, keyword_settings(method), options or {}, from_text=True))


__all__ = ["METHODS", "FewShotMethod", "Predictor", "build_method"]
