"""Whether examples look like those that a run was trained on.

A network answers about anything, and confidently: a character network about colour photographs as well. Distances tell.
Each example's features, as a vector of length one, are compared with those of training examples: the distance to the
10th nearest (Sun et al., Out-of-distribution detection with deep nearest neighbors, ICML 2022). Validation examples
say which distances are usual, because their classes were not trained on either.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from polyshot.data import ClassSet, Scenario
from polyshot.methods import FewShotMethod
from polyshot.methods.base import evaluating

_EXAMPLES = 512  # of training, and of validation
_NEIGHBOUR = 10
_AT_ONCE = 256
_STRANGE = 0.01  # p-values up to here
_USUAL_SHARE = 0.05  # examples of one class or writer are strange together, so more than _STRANGE of them may be
_FALSE_ALARM = 0.01


@dataclass(frozen=True)
class Familiarity:
    """What a run remembers of its training and validation examples.

    Attributes
    ----------
    trained : Tensor [m, d]
        Features of training examples, of length one.
    usual : Tensor [v]
        Distances of validation examples to them.
    """

    trained: Float[Tensor, "m d"]
    usual: Float[Tensor, "v"]

    @classmethod
    def of(cls, method: FewShotMethod, scenario: Scenario, device: torch.device) -> "Familiarity | None":
        """Remember some examples of a scenario; None for a method that adapts its network to each task."""
        if not method.embeds_once:
            return None
        # also those of training are transformed as in a test: that is how examples will come
        trained, validation = (
            features_of(method, _some(classes, scenario.validation), device)
            for classes in (scenario.train, scenario.validation)
        )
        return cls(trained, _distances(validation, trained))

    def p_values(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """The share of validation examples that are at least as far from training as each of these."""
        far = _distances(features, self.trained)
        return (1 + (self.usual >= far[:, None]).sum(1)) / (1 + len(self.usual))


def features_of(method: FewShotMethod, x: Tensor, device: torch.device) -> Float[Tensor, "n d"]:
    """Features of examples in the network's form, of length one."""
    with evaluating(method):
        parts = [method.backbone(part.to(device)).flatten(1).cpu() for part in torch.split(x, _AT_ONCE)]
    return normalize(torch.cat(parts).float())


def n_strange(p_values: Float[Tensor, "n"]) -> int:
    """How many examples are farther from training than all but 1 % of the validation examples."""
    return int((p_values <= _STRANGE).sum())


def looks_strange(p_values: Float[Tensor, "n"]) -> bool:
    """Whether more examples are strange than chance explains (binomial test against 5 %, at level 0.01)."""
    from scipy.stats import binom

    return bool(binom.sf(n_strange(p_values) - 1, len(p_values), _USUAL_SHARE) < _FALSE_ALARM)


def _some(classes: ClassSet, like: ClassSet) -> Tensor:
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(classes.x))[:_EXAMPLES]
    return like.transform(classes.x[torch.from_numpy(rows)], rng)


def _distances(features: Float[Tensor, "n d"], trained: Float[Tensor, "m d"]) -> Float[Tensor, "n"]:
    nearest = torch.cdist(features, trained).topk(min(_NEIGHBOUR, len(trained)), dim=1, largest=False)
    return nearest.values[:, -1]
