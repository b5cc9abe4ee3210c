"""Name birds from five photographs per species, and check whether answers with 90 % confidence are right that often.

python examples/image_features.py

With cub_efficientnet.npz in $POLYSHOT_DATA: ten species of CUB-200-2011 as EfficientNet-Lite0 features, computed
beforehand. Without it: the raw pixels of scikit-learn's digits, which are images but no network's features.
"""

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from polyshot.estimator import OneVsEachClassifier


def images(n_way: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of ten classes."""
    path = Path(os.environ.get("POLYSHOT_DATA", ".")) / "cub_efficientnet.npz"
    if not path.is_file():
        X, y = load_digits(return_X_y=True)
        return X, y
    with np.load(path) as file:
        X, labels = file["X"].astype(float), file["labels"].astype(int)
    return X[labels < n_way], labels[labels < n_way]


def main(n_shot: int = 5) -> dict[str, float]:
    """Fit both classifiers to the same photographs and compare accuracy, log-loss and calibration."""
    X, y = images()
    generator = np.random.default_rng(0)
    picks = np.concatenate([generator.permutation(np.flatnonzero(y == c))[:n_shot] for c in np.unique(y)])
    rest = np.setdiff1d(np.arange(len(y)), picks)[:500]
    result = {}
    for model in (OneVsEachClassifier(), LogisticRegression(max_iter=1000)):
        p = model.fit(X[picks], y[picks]).predict_proba(X[rest])
        hit, confidence = p.argmax(1) == y[rest], p.max(1)
        name = type(model).__name__
        result[name] = float(-np.log(p[np.arange(len(rest)), y[rest]]).mean())
        sure = confidence > 0.9
        print(
            f"{name:>20}: accuracy {hit.mean():.3f}, log-loss {result[name]:.3f}, mean confidence "
            f"{confidence.mean():.3f}; {sure.sum()} answers "
            f"above 0.9, of which {hit[sure].mean() if sure.any() else 0:.3f} right"
        )
    return result


if __name__ == "__main__":
    main()
