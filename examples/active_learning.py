"""Which examples to label next? Those that `next_to_label` names, compared with some drawn at random.

python examples/active_learning.py

Prints two learning curves on the raw 8 x 8 pixels of scikit-learn's digits, not embeddings. It starts with one label
per class, adds ten labels five times, and averages over a few repetitions.
"""

import numpy as np
from sklearn.datasets import load_digits

from polyshot.estimator import OneVsEachClassifier

LABELS_PER_ROUND, ROUNDS = 10, 5


def learn(X: np.ndarray, y: np.ndarray, by_model: bool, seed: int) -> list[float]:
    """Accuracy on held-out digits after each round."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(y))
    test, pool = order[:500], order[500:1000]
    known = np.array([pool[y[pool] == c][0] for c in np.unique(y)])
    model = OneVsEachClassifier().fit(X[known], y[known])
    curve = [model.score(X[test], y[test])]
    for _ in range(ROUNDS):
        left = np.setdiff1d(pool, known)
        if by_model:
            chosen = left[model.next_to_label(X[left], LABELS_PER_ROUND)]
        else:
            chosen = generator.choice(left, LABELS_PER_ROUND, replace=False)
        model.add(X[chosen], y[chosen])
        known = np.concatenate([known, chosen])
        curve.append(model.score(X[test], y[test]))
    return curve


def main(repetitions: int = 5) -> dict[str, list[float]]:
    """Both curves, averaged."""
    X, y = load_digits(return_X_y=True)
    curves = {
        name: np.mean([learn(X, y, by_model, seed) for seed in range(repetitions)], axis=0).tolist()
        for name, by_model in (("next_to_label", True), ("at random", False))
    }
    print("labels        " + "  ".join(f"{10 + LABELS_PER_ROUND * k:5d}" for k in range(ROUNDS + 1)))
    for name, curve in curves.items():
        print(f"{name:<13} " + "  ".join(f"{value:.3f}" for value in curve))
    return curves


if __name__ == "__main__":
    main()
