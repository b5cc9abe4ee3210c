"""Contributions of the examples, labels that may be wrong, and the accuracy to expect."""

import numpy as np
import pytest
from blobs import blobs
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf"}, {"inference": "variational"}])
def test_contributions_sum_to_the_logit_of_the_answer(options):
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier(**options).fit(X, y)
    logits = model.decision_function(queries)
    parts = model.explain(queries)
    assert parts.shape == (len(queries), len(X))
    np.testing.assert_allclose(parts.sum(1), logits.max(1), rtol=0, atol=1e-10)
    for label in range(4):
        others = model.explain(queries, np.full(len(queries), label))
        np.testing.assert_allclose(others.sum(1), logits[:, label], rtol=0, atol=1e-10)


def test_contributions_follow_the_order_of_the_examples_also_after_add_and_remove():
    X, y = np.eye(24), np.arange(24) % 4  # each example is similar only to itself
    model = OneVsEachClassifier("cosine", log_scale=3.0).fit(X[:10], y[:10]).add(X[10:14], y[10:14])
    model.add(X[14:], y[14:])  # doubles the examples, so that all is chosen from scratch
    np.testing.assert_array_equal(model.explain(X, y).argmax(1), np.arange(24))
    X, y = np.delete(X, [3, -2], 0), np.delete(y, [3, -2])
    model.remove([3, -2])
    np.testing.assert_array_equal(model.explain(X, y).argmax(1), np.arange(22))
    model.add(X[:1], y[:1])
    np.testing.assert_array_equal(model.explain(X[1:], y[1:]).argmax(1), np.arange(1, 22))


def test_a_label_that_does_not_exist_cannot_be_explained(fitted):
    queries = blobs()[2][:2]
    with pytest.raises(InputError, match="unknown class 'elk'; choose from 'ant', 'bee', 'cat', 'dog'"):
        fitted.explain(queries, ["ant", "elk"])
    with pytest.raises(InputError, match="y has 1 labels, but X has 2 rows"):
        fitted.explain(queries, ["ant"])


def test_leave_one_out_probabilities_are_near_those_of_a_fit_without_the_example():
    X, y, *_ = blobs(n_way=3, n_shot=4, dim=16)
    options = {"kernel": lambda x, z: x @ z.T / 16, "log_scale": 1.0}  # a kernel without a centre from the examples
    rows, probabilities = OneVsEachClassifier(**options).fit(X, y).suspect_labels()
    assert sorted(rows) == list(range(len(X)))
    assert (np.diff(probabilities) >= 0).all()
    for i, p in zip(rows, probabilities, strict=True):
        others = np.arange(len(X)) != i
        again = OneVsEachClassifier(**options).fit(X[others], y[others]).predict_proba(X[i : i + 1])[0, y[i]]
        assert p == pytest.approx(again, abs=0.03)


@pytest.mark.parametrize("inference", ["auto", "variational"])
def test_flipped_labels_are_found(inference):
    areas = []
    for seed in range(3):
        X, y, *_ = blobs(n_shot=10, seed=seed, dim=64)
        rng = np.random.default_rng(seed)
        flipped = rng.permutation(len(y))[:2]
        y[flipped] = (y[flipped] + rng.integers(1, 4, 2)) % 4
        rows, p = OneVsEachClassifier(inference=inference).fit(X, y).suspect_labels()
        areas.append(roc_auc_score(np.isin(rows, flipped), -p))
    assert np.mean(areas) > 0.97


def test_the_only_example_of_a_class_is_not_judged():
    X, y, *_ = blobs(n_way=3)
    rows, p = OneVsEachClassifier().fit(X[:11], y[:11]).suspect_labels()
    assert rows[-1] == 10
    assert np.isnan(p[-1])
    assert not np.isnan(p[:-1]).any()
    with pytest.raises(InputError, match="no class has two examples"):
        OneVsEachClassifier().fit(X[::5], y[::5]).expected_accuracy()


@pytest.mark.parametrize(("dim", "n_shot", "n_way"), [(16, 2, 3), (8, 5, 4), (8, 12, 2)])
def test_the_interval_of_the_accuracy_covers_it_as_often_as_promised(dim, n_shot, n_way):
    covered, widths = [], []
    for seed in range(60):
        X, y, queries, labels, _ = blobs(n_way, n_shot, n_query=200, seed=seed, dim=dim)
        model = OneVsEachClassifier("cosine", log_scale=3.0).fit(X, y)
        _, low, high = model.expected_accuracy(0.8)
        covered.append(low <= model.score(queries, labels) <= high)
        widths.append(high - low)
    assert sum(covered) >= binom.ppf(1e-3, len(covered), 0.8)
    assert np.mean(widths) < 0.8


def test_the_interval_grows_with_the_level_and_shrinks_with_the_examples():
    widths = {}
    for n_shot in (5, 20):
        X, y, *_ = blobs(n_shot=n_shot, dim=8)
        model = OneVsEachClassifier().fit(X, y)
        for level in (0.5, 0.9):
            accuracy, low, high = model.expected_accuracy(level)
            assert 0 <= low <= accuracy <= high <= 1
            widths[n_shot, level] = high - low
    assert widths[20, 0.9] < widths[5, 0.9]
    assert widths[20, 0.5] < widths[20, 0.9]
    with pytest.raises(InputError, match="confidence_level must be a number between 0 and 1"):
        model.expected_accuracy(90)


def test_an_example_without_others_of_its_class_widens_the_interval():
    X, y, *_ = blobs(n_way=3, n_shot=8)
    both = OneVsEachClassifier().fit(X[:16], y[:16]).expected_accuracy()
    one_more = OneVsEachClassifier().fit(X[:17], y[:17]).expected_accuracy()
    assert one_more.low < both.low
    assert one_more.high == 1.0
