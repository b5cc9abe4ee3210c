"""Accept an answer, say "none of these", or ask a person: sets of labels and alarms with guaranteed error rates.

python examples/decisions.py

Ten handwritten digits of each of five classes are known (8 x 8 pixels, from scikit-learn). Half of the queries are
digits of three classes that the classifier has never seen. The promises are averages over drawings of the examples, so
they are counted over twenty of them. Two hundred queries are few: the counts are off by a few percent either way.
"""

import numpy as np
from sklearn.datasets import load_digits

from polyshot.estimator import OneVsEachClassifier


def count(X: np.ndarray, y: np.ndarray, seed: int, n_shot: int = 10, n_queries: int = 10) -> list[float]:
    """How often each promise was kept with one drawing of the examples."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(5)]
    known = np.concatenate([r[:n_shot] for r in rows])
    queries = rng.permutation(np.concatenate([r[n_shot:] for r in rows]))[:n_queries]
    strangers = rng.permutation(np.flatnonzero(y >= 7))[:n_queries]

    model = OneVsEachClassifier().fit(X[known], y[known])
    sets = model.predict_set(X[queries], confidence_level=0.9)  # boolean [queries, classes]
    alarms, found = (model.outlier_p_value(X[rows]) < 0.05 for rows in (queries, strangers))
    decisions = model.decide(X[queries])  # a label, "none" or "ask"
    right = [decision == truth for decision, truth in zip(decisions, y[queries], strict=True)]
    left_open = [decision in ("none", "ask") for decision in decisions]
    covered = sets[np.arange(n_queries), y[queries]]
    return [float(np.mean(x)) for x in (covered, sets.sum(1), alarms, found, right, left_open)]


def main(repetitions: int = 20) -> dict[str, float]:
    """Means over several drawings of the examples."""
    X, y = load_digits(return_X_y=True)
    names = ("covered", "size", "false alarms", "strangers found", "right", "left open")
    means = np.mean([count(X, y, seed) for seed in range(repetitions)], axis=0)
    result = dict(zip(names, means.tolist(), strict=True))
    print(f"sets at 90 %: the true digit is in {result['covered']:.0%} of them; they have {result['size']:.2f} digits")
    print(f"alarms at 5 %: {result['false alarms']:.0%} of the known, {result['strangers found']:.0%} of the strangers")
    print(f"decisions: {result['right']:.0%} right, {result['left open']:.0%} left to a person, the rest wrong")
    return result


if __name__ == "__main__":
    main()
