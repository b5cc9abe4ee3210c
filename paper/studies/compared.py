"""What the studies compare: the paper's four likelihoods, and two classifiers of scikit-learn on Iris."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression

from polyshot.gp import LIKELIHOODS, Likelihood

# One colour each in all figures: the palette of Okabe & Ito, which colour-blind readers can distinguish.
COLOURS = {
    "softmax": "#000000",
    "gaussian": "#D55E00",
    "logistic-softmax": "#0072B2",
    "one-vs-each": "#009E73",
    "sklearn-gp": "#CC79A7",
    "logistic-regression": "#7F7F7F",
}


class Rival(NamedTuple):
    """A scikit-learn classifier with its own defaults."""

    title: str
    make: Callable[[], Any]


RIVALS = {
    "sklearn-gp": Rival("scikit-learn GP", GaussianProcessClassifier),
    "logistic-regression": Rival("Logistic regression", partial(LogisticRegression, max_iter=1000)),
}
STUDIED: dict[str, type[Likelihood]] = {
    name: LIKELIHOODS[name] for name in ("softmax", "gaussian", "logistic-softmax", "one-vs-each")
}
TITLES = {name: item.title for name, item in (STUDIED | RIVALS).items()}
