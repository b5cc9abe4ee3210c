import numpy as np
import pytest
import torch
from blobs import blobs

from polyshot.estimator import OneVsEachClassifier, covariance, fitted, hyperparameters
from polyshot.gp.inference import leave_one_out


def test_one_shot_leaves_the_scale_to_the_prior_and_many_overrule_it():
    X, y, *_ = blobs(n_shot=1)
    prior = OneVsEachClassifier().fit(X, y).log_scale_
    generator = np.random.default_rng(0)
    noise, labels = generator.standard_normal((120, 64)), np.repeat(np.arange(4), 30)
    assert OneVsEachClassifier().fit(noise, labels).log_scale_ < prior - 1


def test_adding_examples_ends_where_fitting_all_would(monkeypatch):
    X, y, queries, _, _ = blobs(n_way=5, n_shot=6)
    first = y < 4
    model = OneVsEachClassifier(kernel="rbf", log_scale=3.0).fit(X[first], y[first])
    before = model.fitted_
    model.add(X[~first], y[~first])
    assert list(model.classes_) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(fitted.Covariance, "of", lambda *_: before.covariance)
    afresh = OneVsEachClassifier(kernel="rbf", log_scale=3.0).fit(X, y)
    weights = [m.fitted_.weights.numpy()[np.lexsort(m.fitted_.examples.X.T)] for m in (model, afresh)]
    np.testing.assert_allclose(*weights, atol=5e-3)
    np.testing.assert_allclose(model.predict_proba(queries), afresh.predict_proba(queries), atol=2e-3)


def test_scale_and_centre_are_chosen_again_once_the_examples_have_doubled(tmp_path):
    X, y, queries, _, _ = blobs(n_way=4, n_shot=8, dim=128)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    model = OneVsEachClassifier().fit(X[:12], y[:12])
    chosen = model.log_scale_
    model.add(X[12:23], y[12:23])
    assert model.log_scale_ == chosen
    model.save(tmp_path / "model")
    afresh = OneVsEachClassifier().fit(X[:24], y[:24])
    for grown in (model, OneVsEachClassifier.load(tmp_path / "model")):
        grown.add(X[23:24], y[23:24])
        assert grown.log_scale_ == afresh.log_scale_ != chosen
        np.testing.assert_array_equal(grown.predict_proba(queries), afresh.predict_proba(queries))


def test_the_scale_is_chosen_again_once_the_classes_have_doubled(tmp_path):
    X, y, queries, _, _ = blobs(n_way=5, n_shot=10, dim=128)
    few = (y < 2) | (np.arange(len(y)) % 10 == 0)
    X, y = X[few], y[few]
    model = OneVsEachClassifier().fit(X[y < 2], y[y < 2])
    chosen = model.log_scale_
    model.add(X[y == 2], y[y == 2])
    assert model.log_scale_ == chosen
    model.save(tmp_path / "model")
    afresh = OneVsEachClassifier().fit(X, y)
    for grown in (model, OneVsEachClassifier.load(tmp_path / "model")):
        grown.add(X[y > 2], y[y > 2])
        assert grown.log_scale_ == afresh.log_scale_ != chosen
        np.testing.assert_array_equal(grown.predict_proba(queries), afresh.predict_proba(queries))


def test_length_counts_where_there_are_few_features_and_direction_where_there_are_many():
    generator = np.random.default_rng(0)
    for dim, name in ((2, "rbf"), (128, "cosine")):
        near = generator.standard_normal((60, dim))
        near /= np.linalg.norm(near, axis=1, keepdims=True)
        X, y = np.concatenate([near, 3 * near]), np.repeat([0, 1], 60)
        model = OneVsEachClassifier().fit(X[::2], y[::2])
        assert model.fitted_.covariance.kernel == name
        assert (model.score(X[1::2], y[1::2]) > 0.9) == (dim == 2)


def test_a_part_of_many_examples_chooses_a_scale_as_good_as_all_would(monkeypatch):
    X, y, queries, labels, _ = blobs(n_way=6, n_shot=30, n_query=50, dim=8)
    by_all = OneVsEachClassifier().fit(X, y)
    monkeypatch.setattr(hyperparameters, "_MOST_EXAMPLES", 100)
    by_part = OneVsEachClassifier().fit(X, y)
    assert by_part.log_scale_ != by_all.log_scale_
    losses = [-m.predict_log_proba(queries)[np.arange(len(labels)), labels].mean() for m in (by_all, by_part)]
    assert losses[1] < 1.05 * losses[0]


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_neither_the_order_of_many_examples_nor_the_names_of_their_classes_matter(monkeypatch, kernel):
    monkeypatch.setattr(hyperparameters, "_MOST_EXAMPLES", 100)
    monkeypatch.setattr(leave_one_out, "_MOST_ROWS", 40)
    monkeypatch.setattr(covariance, "_MOST_FOR_A_DISTANCE", 50)
    X, y, queries, _, _ = blobs(n_way=16, n_shot=10, n_query=2, dim=8)
    one = OneVsEachClassifier(kernel).fit(X, y)
    names, order = np.random.default_rng(1).permutation(16), np.random.default_rng(2).permutation(len(y))
    other = OneVsEachClassifier(kernel).fit(X[order], names[y[order]])
    assert other.log_scale_ == pytest.approx(one.log_scale_, abs=1e-9)
    np.testing.assert_allclose(other.predict_proba(queries)[:, names], one.predict_proba(queries), atol=1e-6)


def test_the_part_has_equal_classes_or_some_classes_with_ten_examples(monkeypatch):
    monkeypatch.setattr(hyperparameters, "_MOST_EXAMPLES", 100)
    equal = hyperparameters._representatives(torch.arange(6).repeat(30), 6)
    assert (equal % 6).bincount().tolist() == [16] * 6
    some = hyperparameters._representatives(torch.arange(40).repeat(5), 40)
    assert (some % 40).bincount().tolist() == [5] * 20


def test_the_scale_of_the_cosine_is_in_units_of_the_scatter_between_classes():
    scales, scatters = [], []
    for dim in (128, 1024):
        X = np.random.default_rng(0).standard_normal((40, dim))
        scales.append(OneVsEachClassifier().fit(X, np.arange(40)).log_scale_)
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        unit -= 0.8 * unit.mean(0)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        between = (unit @ unit.T)[np.triu_indices(40, 1)]
        scatters.append(np.sqrt((((between - between.mean()) ** 2).sum() + 5 * 0.1**2) / (len(between) + 5)))
    assert scales[1] - scales[0] == pytest.approx(np.log(scatters[0] / scatters[1]), abs=1e-9)
    assert scales[1] > scales[0] + 0.8


def test_an_addition_that_fails_leaves_the_classifier_as_it_was(monkeypatch):
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier().fit(X, y)
    before = model.predict_proba(queries)
    for n in (2, len(X)):  # with the choices there are, and with new ones
        with monkeypatch.context() as patch:
            patch.setattr(OneVsEachClassifier, "_infer", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                model.add(X[:n] + 1, np.full(n, 9))
        np.testing.assert_array_equal(model.predict_proba(queries), before)
        assert list(model.classes_) == [0, 1, 2, 3]
        assert model.fitted_.n_chosen == len(model.fitted_.examples.X) == len(model.fitted_.examples.labels) == len(X)
    model.add(X[:2] + 1, [9, 9])
    assert list(model.classes_) == [0, 1, 2, 3, 9]
