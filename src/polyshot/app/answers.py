"""What is said about one query, and at which levels."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from polyshot.errors import InputError

Action: TypeAlias = Literal["accept", "ask", "none of these"]


@dataclass(frozen=True)
class Levels:
    """How sure the answers have to be.

    Attributes
    ----------
    confidence : float or None
        Probability with which the prediction set contains the true class. None makes no sets, which is much faster.
    false_alarm : float or None
        Largest share of queries of known classes that are called "none of these". None calls nothing so.
    n_reasons : int
        How many of the nearest examples are given as the reason.
    """

    confidence: float | None = 0.9
    false_alarm: float | None = 0.05
    n_reasons: int = 3

    def __post_init__(self) -> None:
        for name, value in (("confidence", self.confidence), ("false_alarm", self.false_alarm)):
            if value is not None and not 0 < value < 1:
                raise InputError(f"{name} must lie between 0 and 1, not at {value:g}")
        if self.n_reasons < 0:
            raise InputError(f"n_reasons must be zero or more, not {self.n_reasons}")

    def notes(self, n_examples: int) -> list[str]:
        """What these levels cannot do with so few examples: no conformal p-value is below 1 / (N + 1)."""
        smallest = 1 / (n_examples + 1)
        found = []
        allowed = 0.0 if self.confidence is None else 1 - self.confidence + 1e-12  # 1 - 0.9 rounds down
        if self.confidence is not None and smallest > allowed:
            needed = _fewest(lambda n: 1 / (n + 1) <= allowed)
            found.append(
                f"prediction sets hold all classes: at confidence {self.confidence:g} they need {needed} labelled "
                f"examples, and there are {n_examples}"
            )
        if self.false_alarm is not None and smallest >= self.false_alarm:
            needed = _fewest(lambda n: 1 / (n + 1) < self.false_alarm)
            found.append(
                f'nothing is called "none of these": with false alarms of {self.false_alarm:g} it needs {needed} '
                f"labelled examples, and there are {n_examples}"
            )
        return found


@dataclass(frozen=True)
class Answer:
    """The answer about one query.

    Attributes
    ----------
    name : str
        The query.
    predicted : str
        The most probable class.
    probability : float
        Its probability.
    action : "accept", "ask" or "none of these"
        Accept if the prediction set holds only the predicted class; "none of these" if the query looks unlike all
        examples; ask a person otherwise. Without prediction sets every query that is not "none of these" is accepted.
    prediction_set : tuple of str or None
        The classes that cannot be excluded at the confidence asked for; it may be empty. None if sets were not made.
    outlier_p_value : float or None
        Small for a query outside all classes. None if it was not computed.
    nearest : tuple of int
        The examples most similar to the query, the nearest first.
    probabilities : tuple of float
        The probability of each class, in the order of the model's classes.
    """

    name: str
    predicted: str
    probability: float
    action: Action
    prediction_set: tuple[str, ...] | None
    outlier_p_value: float | None
    nearest: tuple[int, ...]
    probabilities: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Answer":
        """The answer that `as_dict` made, also after JSON turned its tuples into lists."""
        fields: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in content.items()}
        return cls(**fields)


def _fewest(enough: Any) -> int:
    return next(n for n in range(1, 10**9) if enough(n))
