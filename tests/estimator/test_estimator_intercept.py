import numpy as np
import pytest
from blobs import blobs
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyshot.estimator import OneVsEachClassifier, covariance


@pytest.mark.parametrize("kernel", ["cosine", "dkt-cosine", "linear", "rbf", "normalized-rbf"])
def test_where_features_say_nothing_the_rare_class_stays_rare(kernel):
    X, y = np.random.default_rng(0).standard_normal((300, 128)), np.repeat([0, 1], [5, 95])
    p = OneVsEachClassifier(kernel).fit(X[:100], y).predict_proba(X[100:])
    assert p[:, 0].mean() < 0.2
    assert (p[:, 0] < 0.5).mean() > 0.9


@pytest.mark.parametrize("kernel", ["cosine", "linear"])
def test_a_zero_vector_is_answered_by_how_frequent_the_classes_are(kernel):
    X = np.random.default_rng(0).standard_normal((60, 128))
    model = OneVsEachClassifier(kernel).fit(X - X.mean(0), np.repeat([0, 1, 2], [40, 15, 5]))
    p = model.predict_proba(np.zeros((1, 128)))[0]
    assert p[0] > p[1] > p[2]


def test_the_linear_kernel_can_put_one_class_between_two_others():
    X, y = load_iris(return_X_y=True)
    assert cross_val_score(make_pipeline(StandardScaler(), OneVsEachClassifier("linear")), X, y, cv=3).mean() > 0.95


def test_how_frequent_a_class_is_does_not_enter_the_outlier_score(monkeypatch):
    X, y, queries, _, unseen = blobs(n_shot=12)
    some = np.flatnonzero((y > 0) | (np.arange(len(y)) < 2))
    model = OneVsEachClassifier("cosine", log_scale=3.0).fit(X[some], y[some])
    monkeypatch.setitem(covariance._INTERCEPTS, "cosine", 0.0)
    without = OneVsEachClassifier("cosine", log_scale=3.0).fit(X[some], y[some])
    assert np.abs(model.predict_proba(queries) - without.predict_proba(queries)).max() > 0.01
    both = np.concatenate([queries, unseen])
    np.testing.assert_allclose(model.outlier_score(both), without.outlier_score(both), atol=0.05)


def test_your_own_kernel_is_left_alone():
    X, y, *_ = blobs()
    model = OneVsEachClassifier(lambda x, z: x @ z.T, log_scale=3.0).fit(X, y)
    inner = model.fitted_.examples.X @ model.fitted_.examples.X.T
    np.testing.assert_allclose(
        model.fitted_.posterior.K.numpy(), np.exp(3.0) * inner / inner.diagonal().mean(), atol=1e-9
    )
