"""Guarantees by frequency: the share of misses must be what was promised, within binomial bounds."""

from functools import cache

import numpy as np
import pytest
from blobs import blobs
from scipy.stats import binom

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier

TASKS = 150


@cache
def tasks(kernel, dim, n=24):
    """Models of n examples, each with one query and its label, drawn like the examples from overlapping classes."""
    found = []
    for seed in range(TASKS):
        rng = np.random.default_rng(seed)
        y = np.r_[0, 1, 2, rng.integers(0, 3, n - 2)]
        rng.shuffle(y)
        X = 0.5 * rng.standard_normal((3, dim))[y] + rng.standard_normal((n + 1, dim))
        if len(set(y[:-1])) == 3:
            found.append((OneVsEachClassifier(kernel, log_scale=2.0).fit(X[:-1], y[:-1]), X[-1:], y[-1]))
    return found


def answers(kernel, dim, ask):
    """`ask(model, query, label)` for all tasks."""
    return np.array([ask(*task) for task in tasks(kernel, dim)])


def at_most(failures, rate):
    """Not more failures than chance allows at this rate, once in ten thousand."""
    return failures.sum() <= binom.ppf(1 - 1e-4, len(failures), rate)


@pytest.mark.parametrize(("kernel", "dim"), [("cosine", 8), ("rbf", 3), ("linear", 5)])
def test_sets_miss_the_true_label_as_rarely_as_promised(kernel, dim):
    p = answers(kernel, dim, lambda model, x, label: model.predict_p(x)[0, label])
    for level in (0.8, 0.9, 0.95):
        assert at_most(p <= 1 - level, 1 - level)
    misses = p <= 0.2
    assert misses.sum() >= binom.ppf(1e-4, len(p), 0.2 - 1 / 25)  # and not far more rarely, which would be useless


def test_sets_keep_their_promise_within_each_class():
    def ask(model, x, label):
        return model.predict_p(x, per_class=True)[0, label], label

    p, labels = answers("cosine", 8, ask).T
    for label in range(3):
        assert at_most(p[labels == label] <= 0.2, 0.2)


def test_false_alarms_are_as_rare_as_promised_and_strangers_are_found():
    def ask(model, x, _):
        return model.outlier_p_value(np.r_[x, 8 * np.ones_like(x)])

    known, strange = answers("rbf", 3, ask).T
    assert at_most(known < 0.05, 0.05)
    assert (strange < 0.05).mean() > 0.95


def test_sets_are_small_where_classes_are_apart_and_grow_with_the_level():
    X, y, queries, labels, _ = blobs(n_shot=8, dim=64)
    model = OneVsEachClassifier().fit(X, y)
    sets = {level: model.predict_set(queries, level) for level in (0.5, 0.9, 0.99)}
    assert sets[0.9].dtype == bool
    assert sets[0.9].sum(1).mean() < 1.2
    assert sets[0.9][np.arange(len(labels)), labels].mean() > 0.85
    assert (sets[0.5] <= sets[0.9]).all()
    assert sets[0.99].all()  # 32 examples cannot exclude anything at this level
    assert (model.predict_set(queries, 0.9, per_class=True)).all()  # nor can 8 of a class at this one


@pytest.mark.parametrize(("n_shot", "level"), [(4, 0.8), (9, 0.9), (19, 0.95)])
def test_a_p_value_equal_to_the_allowed_rate_excludes_a_label(n_shot, level):
    X, y, queries, *_ = blobs(n_way=2, n_shot=n_shot, dim=64)
    model = OneVsEachClassifier(log_scale=3.0).fit(X, y)
    p = model.predict_p(queries, per_class=True)
    smallest = np.isclose(p, 1 / (n_shot + 1))
    assert smallest.any()
    np.testing.assert_array_equal(model.predict_set(queries, level, per_class=True), ~smallest)


def test_a_decision_is_a_label_none_or_ask():
    asked = {}
    for dim in (8, 64):  # classes that overlap, with an accuracy of 0.78, and classes that are apart
        X, y, queries, labels, _ = blobs(n_shot=8, dim=dim)
        model = OneVsEachClassifier().fit(X, np.array(["ant", "bee", "cat", "dog"])[y])
        decisions, sets, p = model.decide(queries), model.predict_set(queries), model.outlier_p_value(queries)
        for decision, row, outside in zip(decisions, sets, p, strict=True):
            expected = model.classes_[row.argmax()] if row.sum() == 1 else "ask"
            assert decision == ("none" if outside < 0.05 else expected)
        asked[dim] = (decisions == "ask").mean()
        assert model.decide(-100 * np.ones((1, dim)), none="?").tolist() == ["?"]
    assert (decisions == model.classes_[labels]).mean() > 0.85
    assert asked[64] < 0.15 < asked[8]


def test_a_label_is_given_where_it_is_expected_to_cost_less_than_asking():
    X, y, queries, *_ = blobs(n_shot=8, dim=8)
    model = OneVsEachClassifier().fit(X, y)
    p, outside = model.predict_proba(queries), model.outlier_p_value(queries) < 0.05
    for cost in (0.02, 0.2, 0.6):
        expected = np.where(1 - p.max(1) < cost, model.predict(queries).astype(object), "ask")
        assert model.decide(queries, asking_cost=cost).tolist() == np.where(outside, "none", expected).tolist()
    with pytest.raises(InputError, match="asking_cost must be a number between 0 and 1"):
        model.decide(queries, asking_cost=2)


def test_levels_and_words_that_make_no_sense_are_refused(fitted):
    queries = blobs()[2]
    for level in (0.0, 1.0, 90, "high"):
        with pytest.raises(InputError, match="confidence_level must be a number between 0 and 1"):
            fitted.predict_set(queries, level)
    with pytest.raises(InputError, match="false_alarm_rate must be"):
        fitted.decide(queries, false_alarm_rate=5.0)
    with pytest.raises(InputError, match="'ant' is also a class"):
        fitted.decide(queries, none="ant")
