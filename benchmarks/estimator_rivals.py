"""What people with a few labelled embeddings use today: each gives probabilities and outlier scores for queries."""

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

Array = NDArray[np.float64]
# queries -> (probabilities [Q, C], outlier scores by name, each [Q], larger = more likely none of the classes)
Predictor = Callable[[Array], tuple[Array, dict[str, Array]]]
TEMPERATURES = np.geomspace(0.005, 1.0, 40)


class Impossible(Exception):
    """The rival cannot be fitted to such a task (for example, cross-validation with one example per class)."""


def smallest_class(y: NDArray[np.int64]) -> int:
    return int(np.bincount(y).min())


def scikit(estimator: object, X: Array, y: NDArray[np.int64]) -> Predictor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, y)  # type: ignore[attr-defined]

    def predict(queries: Array) -> tuple[Array, dict[str, Array]]:
        probs = estimator.predict_proba(queries)  # type: ignore[attr-defined]
        scores = {"probability": -probs.max(1)}
        if hasattr(estimator, "decision_function"):
            logits = estimator.decision_function(queries)
            scores["decision"] = -np.abs(logits) if logits.ndim == 1 else -logits.max(1)
        return probs, scores

    return predict


def logistic_1(X: Array, y: NDArray[np.int64]) -> Predictor:
    return scikit(LogisticRegression(C=1.0, max_iter=1000), X, y)


def logistic_100(X: Array, y: NDArray[np.int64]) -> Predictor:
    return scikit(LogisticRegression(C=100.0, max_iter=1000), X, y)


def logistic_scaled(X: Array, y: NDArray[np.int64]) -> Predictor:
    return scikit(make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=1000)), X, y)


def logistic_cv(X: Array, y: NDArray[np.int64]) -> Predictor:
    folds = min(5, smallest_class(y))
    if folds < 2:
        raise Impossible("cross-validation needs two examples per class")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = LogisticRegressionCV(
            Cs=10, cv=folds, scoring="neg_log_loss", max_iter=1000, l1_ratios=(0,), use_legacy_attributes=False
        )
    return scikit(estimator, X, y)


def gaussian_process(X: Array, y: NDArray[np.int64]) -> Predictor:
    # Its optimiser ends in a constant at one shot and at many classes. Of prior variances 1, 10 and 100 and lengths of
    # the typical distance and half of it, optimised or not, this had the best log-loss in four of five design tasks.
    kernel = ConstantKernel(10.0) * RBF(max(float(np.median(pdist(X))), 1e-3))
    return scikit(GaussianProcessClassifier(kernel, optimizer=None), X, y)


def support_vectors(X: Array, y: NDArray[np.int64]) -> Predictor:
    return scikit(SVC(probability=True, random_state=0), X, y)


def discriminant(X: Array, y: NDArray[np.int64]) -> Predictor:
    if smallest_class(y) < 2:
        raise Impossible("a covariance within classes needs two examples per class")
    return scikit(LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"), X, y)


def neighbours(X: Array, y: NDArray[np.int64]) -> Predictor:
    model = KNeighborsClassifier(min(5, len(X)), metric="cosine", weights="distance").fit(X, y)

    def predict(queries: Array) -> tuple[Array, dict[str, Array]]:
        probs = model.predict_proba(queries)
        distance = model.kneighbors(queries)[0]
        return probs, {"probability": -probs.max(1), "nearest": distance[:, 0], "mean distance": distance.mean(1)}

    return predict


def prototypes(X: Array, y: NDArray[np.int64]) -> Predictor:
    """Softmax of cosines to the class means; temperature by leave-one-out log-loss (0.1 where nothing is left)."""
    U = X / np.linalg.norm(X, axis=1, keepdims=True).clip(1e-12)
    Y = np.eye(y.max() + 1)[y]
    sums, counts = Y.T @ U, Y.sum(0)
    temperature = 0.1
    if counts.min() > 1:
        own = (sums[y] - U) / np.linalg.norm(sums[y] - U, axis=1, keepdims=True)
        cosines = U @ (sums / np.linalg.norm(sums, axis=1, keepdims=True)).T
        cosines[np.arange(len(y)), y] = (U * own).sum(1)
        losses = [-log_softmax(cosines / t)[np.arange(len(y)), y].mean() for t in TEMPERATURES]
        temperature = float(TEMPERATURES[int(np.argmin(losses))])
    means = sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def predict(queries: Array) -> tuple[Array, dict[str, Array]]:
        cosines = queries / np.linalg.norm(queries, axis=1, keepdims=True).clip(1e-12) @ means.T
        probs = np.exp(log_softmax(cosines / temperature))
        return probs, {"probability": -probs.max(1), "cosine": -cosines.max(1)}

    return predict


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


RIVALS: dict[str, Callable[[Array, NDArray[np.int64]], Predictor]] = {
    "LogisticRegression(C=1)": logistic_1,
    "LogisticRegression(C=100)": logistic_100,
    "StandardScaler + LogisticRegression": logistic_scaled,
    "LogisticRegressionCV": logistic_cv,
    "GaussianProcessClassifier": gaussian_process,
    "prototypes": prototypes,
    "k-NN": neighbours,
    "SVC": support_vectors,
    "LinearDiscriminantAnalysis": discriminant,
}
