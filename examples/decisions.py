"""Accept an answer, say "none of these", or ask a person: sets of labels and alarms with guaranteed error rates.

python examples/decisions.py

Ten handwritten digits of each of five classes are known (8 x 8 pixels, from scikit-learn). Among the queries are digits
of three classes that the classifier has never seen.
"""

import numpy as np
from sklearn.datasets import load_digits

from polyshot.estimator import OneVsEachClassifier


def main(n_shot: int = 10, n_queries: int = 100) -> dict[str, float]:
    """Fit, decide, and count how often each promise was kept."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(5)]
    known = np.concatenate([r[:n_shot] for r in rows])
    queries = rng.permutation(np.concatenate([r[n_shot:] for r in rows]))[:n_queries]
    strangers = rng.permutation(np.flatnonzero(y >= 7))[:n_queries]

    model = OneVsEachClassifier().fit(X[known], y[known])
    sets = model.predict_set(X[queries], confidence_level=0.9)  # boolean [queries, classes]
    alarms, found = (model.outlier_p_value(X[rows]) < 0.05 for rows in (queries, strangers))
    decisions = model.decide(X[queries])  # a label, "none" or "ask"
    answered = np.array([decision not in ("none", "ask") for decision in decisions])
    result = {
        "covered": float(sets[np.arange(n_queries), y[queries]].mean()),
        "size": float(sets.sum(1).mean()),
        "false alarms": float(alarms.mean()),
        "strangers found": float(found.mean()),
        "answered": float(answered.mean()),
        "right": float((decisions[answered] == y[queries][answered]).mean()),
    }
    print(f"sets at 90 %: the true digit is in {result['covered']:.0%} of them; they have {result['size']:.2f} digits")
    print(f"alarms at 5 %: {result['false alarms']:.0%} of the known, {result['strangers found']:.0%} of the strangers")
    print(f"decisions: {result['answered']:.0%} answered, of which {result['right']:.0%} are right; the others ask")
    return result


if __name__ == "__main__":
    main()
