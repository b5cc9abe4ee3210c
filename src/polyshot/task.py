"""What every room may know: labelled examples, an episode, a prediction, and the space that examples live in."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from jaxtyping import Float
from torch import Tensor

OUTSIDE = -1  # the label of a query whose class is not in the support set

Kind: TypeAlias = Literal["characters", "natural", "embeddings"]


class LabelledSet(NamedTuple):
    """x [N, ...] with labels y [N], int64 in 0..C-1 (a query may carry OUTSIDE)."""

    x: Tensor
    y: Tensor


class Episode(NamedTuple):
    """One task: adapt to `support`, be judged on `query`."""

    support: LabelledSet
    query: LabelledSet
    n_way: int


class Prediction(NamedTuple):
    """Log-probabilities and scores (posterior mean logits) of each query, averaged over the chains.

    variance: the total posterior variance of its logits, averaged over the classes; None where there is no posterior.
    """

    log_probs: Float[Tensor, "*batch q c"]
    scores: Float[Tensor, "*batch q c"]
    variance: Float[Tensor, "*batch q"] | None = None


@dataclass(frozen=True)
class Space:
    """What a method is built for: the shape of one example, and the number of training classes."""

    shape: tuple[int, ...]
    n_classes: int

    @property
    def kind(self) -> Kind:
        """Characters are small and grey. The protocol has different settings for them and for photographs."""
        if len(self.shape) == 1:
            return "embeddings"
        return "characters" if self.shape[0] == 1 else "natural"
