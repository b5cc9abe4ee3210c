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
    """What a method answers about each query.

    Attributes
    ----------
    log_probs : Tensor [*batch, Q, C]
        Log-probabilities of the classes.
    scores : Tensor [*batch, Q, C]
        Scores of the classes before normalisation; for a GP the posterior means of the logits.
    variance : Tensor [*batch, Q], optional
        The posterior variance of the logits, averaged over the classes; None for a method without a posterior.
    outlier : Tensor [*batch, Q], optional
        The method's own score for "none of these classes", larger for a query that is less like all of them. None for
        a method without one; then minus the largest score takes its place.
    """

    log_probs: Float[Tensor, "*batch q c"]
    scores: Float[Tensor, "*batch q c"]
    variance: Float[Tensor, "*batch q"] | None = None
    outlier: Float[Tensor, "*batch q"] | None = None


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
