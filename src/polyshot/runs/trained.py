"""Predict with a trained run: `polyshot.load("runs/x").adapt(x, y).predict(x_new)`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.errors import InputError
from polyshot.methods import FewShotMethod, Predictor
from polyshot.runs.config import TrainingConfig
from polyshot.runs.distributed import find_device
from polyshot.runs.familiarity import Familiarity, features_of
from polyshot.runs.folder import RunFolder
from polyshot.runs.inputs import Examples, Intake
from polyshot.task import LabelledSet

_AT_ONCE = 512  # queries read and predicted at a time


@dataclass(frozen=True)
class Answer:
    """The predictions for Q queries.

    Attributes
    ----------
    log_probs : Tensor [Q, C]
        Log-probability of each class.
    scores : Tensor [Q, C]
        The method's score of each class; for a GP method the posterior mean logit.
    class_names : tuple
        The label of each column.
    familiarity : Tensor [Q] or None
        For each query the share of the run's validation examples that are at least as far from its training examples:
        small for a query that looks like nothing that the run was trained on. None if the run cannot tell.
    """

    log_probs: Float[Tensor, "q c"]
    scores: Float[Tensor, "q c"]
    class_names: tuple[Any, ...]
    familiarity: Float[Tensor, "q"] | None = None

    @property
    def probabilities(self) -> Float[Tensor, "q c"]:
        """[Q, C], the probability of each class."""
        return self.log_probs.exp()

    @property
    def labels(self) -> list[Any]:
        """The most probable class of each query, Q labels."""
        return [self.class_names[c] for c in self.log_probs.argmax(-1).tolist()]

    @property
    def confidence(self) -> Float[Tensor, "q"]:
        """[Q], the probability of the most probable class."""
        return self.probabilities.amax(-1)

    @property
    def out_of_episode(self) -> Float[Tensor, "q"]:
        """[Q], minus the largest score: high for a query outside all classes."""
        return -self.scores.amax(-1)


@dataclass(frozen=True)
class Adapted:
    """A trained run that has seen a support set; `TrainedRun.adapt` makes one.

    Attributes
    ----------
    class_names : tuple
        The labels of the support set, sorted.
    predictor : Predictor
        The method, conditioned on the support set.
    intake : Intake
        How examples are brought into the network's form.
    run : TrainedRun
        The run.
    familiarity : Tensor [N] or None
        As in `Answer`, of the examples of the support set.
    """

    class_names: tuple[Any, ...]
    predictor: Predictor
    intake: Intake
    run: "TrainedRun"
    familiarity: Float[Tensor, "n"] | None

    def predict(self, x: Examples) -> Answer:
        """Predict queries.

        Parameters
        ----------
        x : list of image files, array or tensor
            Any form that `TrainedRun.adapt` takes.

        Returns
        -------
        Answer
        """
        if not len(x):
            raise InputError("there is no query; at least one is needed")
        answers = [self._predict(self.intake(x[first : first + _AT_ONCE])) for first in range(0, len(x), _AT_ONCE)]
        log_probs, scores = (torch.cat([getattr(a, name) for a in answers]) for name in ("log_probs", "scores"))
        familiar = [a.familiarity for a in answers if a.familiarity is not None]
        return Answer(log_probs, scores, self.class_names, torch.cat(familiar) if familiar else None)

    def _predict(self, x: Tensor) -> Answer:
        prediction = self.predictor(x.to(self.run.device))
        return Answer(prediction.log_probs.cpu(), prediction.scores.cpu(), self.class_names, self.run.familiarity_of(x))


@dataclass(frozen=True)
class TrainedRun:
    """A trained method; `polyshot.load` reads one from its run folder.

    Attributes
    ----------
    path : Path
        The run folder.
    method : FewShotMethod
        The method with its best weights.
    config : TrainingConfig
        What it was trained on, and how.
    best : dict
        The log entry of the epoch that the weights are from.
    device : torch.device
        Where predictions are computed.
    familiar : Familiarity or None
        How examples look to the network; None if the run cannot tell strange ones.
    """

    path: Path
    method: FewShotMethod
    config: TrainingConfig
    best: dict[str, Any]
    device: torch.device
    familiar: Familiarity | None

    def adapt(self, x: Examples, y: Any, seed: int = 0) -> Adapted:
        """Condition the method on a support set of two classes or more.

        Parameters
        ----------
        x : list of image files, array or tensor
            uint8 images [n, c, h, w] or [n, h, w], floats in the network's own form, or embeddings [n, d].
        y : sequence
            n labels that can be sorted, all names or all numbers.
        seed : int
            Seed of methods that draw samples.

        Returns
        -------
        Adapted
        """
        labels = y.tolist() if isinstance(y, (Tensor, np.ndarray)) else list(y)
        if len(labels) != len(x):
            raise InputError(f"{len(x)} support examples and {len(labels)} labels; give one label per example")
        try:
            class_names = tuple(sorted(set(labels)))
        except TypeError as error:
            raise InputError(f"the labels must be all names or all numbers ({error})") from error
        if len(class_names) < 2:
            raise InputError(f"a support set needs two classes or more; this one has {list(class_names)}")
        intake = Intake.fitting(self.method.space, x)
        targets = torch.tensor([class_names.index(label) for label in labels], device=self.device)
        inputs = intake(x)
        predictor = self.method.adapt(LabelledSet(inputs.to(self.device), targets), len(class_names), seed)
        return Adapted(class_names, predictor, intake, self, self.familiarity_of(inputs))

    def familiarity_of(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n"] | None:
        """As in `Answer`, of examples in the network's form."""
        if self.familiar is None:
            return None
        return self.familiar.p_values(features_of(self.method, x, self.device))


def load(path: Path | str, device: str | None = None) -> TrainedRun:
    """Load a trained run.

    Parameters
    ----------
    path : Path or str
        A run folder of `polyshot train`.
    device : str, optional
        Where to compute, such as "cpu" or "cuda"; the GPU by default, if there is one.

    Returns
    -------
    TrainedRun

    Examples
    --------
    >>> run = polyshot.load("runs/ove")  # doctest: +SKIP
    >>> run.adapt(x, y).predict(x_new).labels  # doctest: +SKIP
    """
    folder, place = RunFolder(path), find_device(device)
    method, best = folder.load_method()
    return TrainedRun(folder.path, method.to(place), folder.config, best, place, folder.familiar())
