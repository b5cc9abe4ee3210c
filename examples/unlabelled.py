"""One label per class and many examples without a label: what those are worth.

python examples/unlabelled.py

Five handwritten digits (8 x 8 pixels, from scikit-learn) with one label each. The pool has forty unlabelled examples of
each, and as many of the other five digits, which belong to none of the classes. The log-losses are means over ten
drawings.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from polyshot.estimator import OneVsEachClassifier


def compare(X: np.ndarray, y: np.ndarray, seed: int, n_pool: int = 40) -> tuple[float, float]:
    """Log-loss of further digits by the labels alone, and with the pool."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in rng.permutation(10)]
    known = np.array([r[0] for r in rows[:5]])
    pool = np.concatenate([r[1 : 1 + n_pool] for r in rows])
    queries = np.concatenate([r[1 + n_pool :] for r in rows[:5]])

    alone = OneVsEachClassifier().fit(X[known], y[known])
    with_pool = OneVsEachClassifier(unlabeled=-1).fit(X[np.r_[known, pool]], np.r_[y[known], np.full(len(pool), -1)])
    losses = [log_loss(y[queries], model.predict_proba(X[queries])) for model in (alone, with_pool)]
    return losses[0], losses[1]


def main(repetitions: int = 10) -> dict[str, float]:
    """Means over several drawings."""
    X, y = load_digits(return_X_y=True)
    means = np.mean([compare(X, y, seed) for seed in range(repetitions)], axis=0)
    result = dict(zip(("labels alone", "with the pool"), means.tolist(), strict=True))
    print(", ".join(f"{name}: log-loss {value:.3f}" for name, value in result.items()))
    return result


if __name__ == "__main__":
    main()
