import numpy as np
import pytest
import torch
from blobs import blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier


def task(seed=0, dim=128, noise=2.0):
    """One label per class, twenty unlabelled rows per class, and queries."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, dim))
    draw = lambda n: centres.repeat(n, 0) + noise * rng.normal(size=(4 * n, dim))  # noqa: E731
    return draw(1), np.arange(4), draw(20), draw(25), np.arange(4).repeat(25)


def log_loss(model, queries, labels):
    return -model.predict_log_proba(queries)[np.arange(len(labels)), labels].mean()


def joined(X, y, pool, value):
    return np.concatenate([X, pool]), [*y, *([value] * len(pool))]


def test_a_pool_makes_one_label_per_class_worth_more():
    ratios = []
    for seed in range(5):
        X, y, pool, queries, labels = task(seed)
        alone = log_loss(OneVsEachClassifier().fit(X, y), queries, labels)
        ratios.append(log_loss(OneVsEachClassifier(unlabeled=-1).fit(*joined(X, y, pool, -1)), queries, labels) / alone)
    assert np.mean(ratios) < 0.8


@pytest.mark.parametrize(
    ("names", "value"),
    [("abcd", ""), ("abcd", "?"), ("abcd", None), ([0.0, 1.0, 2.0, 3.0], np.nan), ([3, 2, 1, 0], -1)],
)
def test_every_kind_of_label_and_of_no_label_gives_the_same_model(names, value):
    X, y, pool, queries, _ = task()
    names = list(names)
    model = OneVsEachClassifier(unlabeled=value).fit(*joined(X, names, pool, value))
    assert model.classes_.tolist() == sorted(names)
    expected = OneVsEachClassifier(unlabeled=-1).fit(*joined(X, y, pool, -1)).predict_proba(queries)
    np.testing.assert_allclose(model.predict_proba(queries)[:, np.argsort(np.argsort(names))], expected, rtol=1e-9)


def test_without_rows_of_the_value_nothing_changes():
    X, y, queries, *_ = blobs()
    expected = OneVsEachClassifier().fit(X, y).predict_proba(queries)
    np.testing.assert_array_equal(OneVsEachClassifier(unlabeled=-1).fit(X, y).predict_proba(queries), expected)
    assert -1 in OneVsEachClassifier().fit(X, y - 1).classes_


def test_neither_the_order_of_the_pool_nor_that_of_the_labels_matters():
    X, y, pool, queries, _ = task()
    rows, labels = joined(X, y, pool, -1)
    order = np.random.default_rng(0).permutation(len(rows))
    first, second = (OneVsEachClassifier(unlabeled=-1).fit(rows[o], np.array(labels)[o]) for o in (slice(None), order))
    np.testing.assert_allclose(first.predict_proba(queries), second.predict_proba(queries), rtol=1e-7)


def test_added_unlabelled_rows_join_the_pool_and_added_labels_keep_it():
    X, _, pool, queries, _ = task()
    names = np.array(["a", "b", "c", "d"])
    whole = OneVsEachClassifier(unlabeled="?").fit(*joined(X, names, pool, "?"))
    grown = OneVsEachClassifier(unlabeled="?").fit(X, names)
    grown.add(pool[:30], ["?"] * 30).add(pool[30:], np.array(["?"] * 50))
    np.testing.assert_allclose(grown.predict_proba(queries), whole.predict_proba(queries), rtol=1e-7)
    grown.add(queries[:1], ["a"])
    assert len(grown.fitted_.covariance.pool) == 80
    assert grown.predict(queries[:1]) == "a"
    assert [len(companion.X) for companion in grown.fitted_.companions] == [5, 65]


def test_a_pipeline_and_a_grid_search_leave_the_pool_out_of_the_score():
    X, y, queries, labels, _ = blobs(n_shot=6)
    y = np.where(np.arange(len(y)) % 3 == 2, -1, y)
    model = make_pipeline(StandardScaler(), OneVsEachClassifier(unlabeled=-1))
    search = GridSearchCV(model, {"onevseachclassifier__log_scale": [0.0, 4.0]}, cv=3, error_score="raise").fit(X, y)
    assert search.predict(queries).min() >= 0
    inner = search.best_estimator_[-1]
    scaled = search.best_estimator_[0].transform(queries)
    some = np.where(np.arange(len(labels)) % 2, labels, -1)
    assert inner.score(scaled, some) == np.mean(inner.predict(scaled)[1::2] == labels[1::2])
    with pytest.raises(InputError, match="no row of y has a label"):
        inner.score(scaled, np.full(len(labels), -1))


@pytest.mark.parametrize("value", ["?", None])
def test_a_model_with_a_pool_is_saved_with_it(tmp_path, value):
    X, _, pool, queries, _ = task()
    model = OneVsEachClassifier(unlabeled=value).fit(*joined(X, "abcd", pool, value))
    model.save(tmp_path / "model")
    again = OneVsEachClassifier.load(tmp_path / "model")
    assert again.unlabeled == value
    for name in ("predict_proba", "outlier_score"):
        np.testing.assert_allclose(getattr(again, name)(queries), getattr(model, name)(queries), rtol=1e-9)
    again.add(pool[:1], [value])
    assert len(again.fitted_.covariance.pool) == 81


@pytest.mark.parametrize("kernel", ["rbf", "linear", "normalized-rbf", lambda x, z: x @ z.T + 1])
def test_every_kernel_takes_a_pool_and_stays_a_covariance(kernel):
    X, y, pool, queries, _ = task(dim=5, noise=0.3)
    model = OneVsEachClassifier(kernel, unlabeled=-1).fit(*joined(X, y, pool, -1))
    rows = torch.from_numpy(np.concatenate([X, queries]))
    K = model.fitted_.covariance(rows, rows)
    assert torch.linalg.eigvalsh((K + K.mT) / 2).min() > -1e-8 * K.abs().max()
    torch.testing.assert_close(K.diagonal(), model.fitted_.covariance.diagonal(rows))
    assert model.score(queries, np.arange(4).repeat(25)) > 0.8


def test_tiny_pools_copies_and_zero_rows_are_fine():
    X, y, pool, queries, _ = task()
    for rows in (pool[:1], np.repeat(X, 15, axis=0), np.concatenate([pool, np.zeros((2, 128))])):
        model = OneVsEachClassifier(unlabeled=-1).fit(*joined(X, y, rows, -1))
        assert np.isfinite(model.predict_proba(queries)).all()


def test_what_cannot_be_a_pool_is_refused():
    X, y, pool, *_ = task()
    with pytest.raises(InputError, match="every row of y is unlabelled"):
        OneVsEachClassifier(unlabeled=-1).fit(pool, [-1] * len(pool))
    with pytest.raises(InputError, match="at least 2 classes"):
        OneVsEachClassifier(unlabeled=-1).fit(*joined(X[:1], y[:1], pool, -1))
    with pytest.raises(InputError, match="unlabeled must be"):
        OneVsEachClassifier(unlabeled=[1]).fit(X, y)
    with pytest.raises(InputError, match="missing labels"):
        OneVsEachClassifier(unlabeled="?").fit(X, ["a", "b", None, "c"])


def test_the_logits_are_the_sum_of_the_shares_of_the_three_models():
    X, y, pool, queries, _ = task()
    model = OneVsEachClassifier(unlabeled=-1).fit(*joined(X, y, pool, -1))
    fitted, (plain, trained) = model.fitted_, model.fitted_.companions

    def graph(x):
        K = np.exp(fitted.log_scale) * fitted.covariance(x, torch.from_numpy(fitted.examples.X))
        return (K + fitted.covariance.intercept) @ fitted.weights

    q = torch.from_numpy(queries)
    expected = plain.share * plain.logits(q) + trained.share * (trained.logits(q) + graph(q))
    np.testing.assert_allclose(model.decision_function(queries), expected, rtol=1e-9, atol=1e-9)
    unlabelled = fitted.covariance.pool
    plain_p, graph_p = (torch.softmax(model(unlabelled), -1) for model in (plain.logits, graph))
    agreement = float((plain_p * graph_p).sqrt().sum(-1).mean())
    support = torch.from_numpy(X)
    near = [plain.covariance(x, support).numpy() for x in (unlabelled, support)]
    nearness = np.mean(
        [np.delete(near[0], i, 1).max(1) > np.delete(near[1], i, 1)[i].max() for i in range(4)]  # one row per class
    )
    trust = 3 * (nearness - 0.5) + 15 * (agreement - 0.91)
    assert 0 < trust < 1
    assert trained.share == pytest.approx(trust * (1 + 2 * float(plain_p.amax(-1).mean())) / 9)
    assert plain.share == pytest.approx(1 - trust + trained.share)


def test_what_the_examples_contribute_is_the_answer_less_what_the_guessed_rows_contribute():
    X, y, pool, queries, _ = task()
    model = OneVsEachClassifier(unlabeled=-1).fit(*joined(X, y, pool, -1))
    trained = model.fitted_.companions[1]
    guessed = trained.covariances(torch.from_numpy(queries))[:, 4:] @ trained.weights[4:] * trained.share
    expected = model.decision_function(queries).max(1) - guessed.numpy()[np.arange(100), model.predict(queries)]
    np.testing.assert_allclose(model.explain(queries).sum(1), expected, rtol=1e-9)


def test_a_pool_with_as_many_strangers_as_members_still_helps():
    ratios = []
    for seed in range(4):
        X, y, pool, queries, labels = task(seed)
        mixed = np.concatenate([pool, task(seed + 100)[2]])
        alone = log_loss(OneVsEachClassifier().fit(X, y), queries, labels)
        model = OneVsEachClassifier(unlabeled=-1).fit(*joined(X, y, mixed, -1))
        ratios.append(log_loss(model, queries, labels) / alone)
    assert np.mean(ratios) < 0.95


def test_a_pool_of_strangers_only_changes_little():
    ratios = []
    for seed in range(6):
        X, y, _, queries, labels = task(seed)
        alone = log_loss(OneVsEachClassifier().fit(X, y), queries, labels)
        model = OneVsEachClassifier(unlabeled=-1).fit(*joined(X, y, task(seed + 100)[2], -1))
        ratios.append(log_loss(model, queries, labels) / alone)
    assert np.mean(ratios) < 1.03
    assert max(ratios) < 1.1


def test_at_most_fifteen_rows_per_class_are_guessed():
    X, y, pool, *_ = task()
    pool = pool[:25]  # twenty of one class, five of another
    trained = OneVsEachClassifier(unlabeled=-1).fit(*joined(X, y, pool, -1)).fitted_.companions[1]
    assert 4 + 15 <= len(trained.X) <= 4 + 25
