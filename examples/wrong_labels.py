"""Find wrong labels among the examples, correct them, and see what that is worth.

python examples/wrong_labels.py

A hundred handwritten digits (8 x 8 pixels, from scikit-learn), ten of which get a wrong label.
"""

import numpy as np
from sklearn.datasets import load_digits

from polyshot.estimator import OneVsEachClassifier


def main(n_shot: int = 20, n_wrong: int = 10) -> dict[str, float]:
    """Spoil labels, look at the most suspicious ones, and correct those that a person would."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(5)]
    known, rest = np.concatenate([r[:n_shot] for r in rows]), np.concatenate([r[n_shot:] for r in rows])
    labels = y[known]
    wrong = rng.permutation(len(known))[:n_wrong]
    labels[wrong] = (labels[wrong] + rng.integers(1, 5, n_wrong)) % 5

    model = OneVsEachClassifier().fit(X[known], labels)
    suspects, _ = model.suspect_labels()  # the least probable labels first
    looked_at = suspects[: 2 * n_wrong]
    result = {"found": float(np.isin(wrong, looked_at).mean()), "before": model.score(X[rest], y[rest])}
    model.remove(looked_at).add(X[known[looked_at]], y[known[looked_at]])  # a person has looked at each of them
    result["after"] = model.score(X[rest], y[rest])
    print(f"{result['found']:.0%} of the wrong labels are among the {len(looked_at)} most suspicious of {len(known)}")
    print(f"accuracy on further digits: {result['before']:.3f} before, {result['after']:.3f} after the correction")
    return result


if __name__ == "__main__":
    main()
