import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyshot.errors import DataError, InputError
from polyshot.estimator import OneVsEachClassifier, hyperparameters
from polyshot.gp import Cosine, OneVsEachGP, fit_propagation


def blobs(n_way=4, n_shot=5, n_query=10, seed=0, dim=32):
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((n_way + 2, dim))
    y, labels = np.repeat(np.arange(n_way), n_shot), np.repeat(np.arange(n_way), n_query)
    X, queries = (centres[k] + generator.standard_normal((len(k), dim)) for k in (y, labels))
    unseen = centres[n_way:].repeat(n_query, 0) + generator.standard_normal((2 * n_query, dim))
    return X, y, queries, labels, unseen


@pytest.fixture(scope="module")
def fitted():
    X, y, *_ = blobs()
    return OneVsEachClassifier().fit(X, np.array(["ant", "bee", "cat", "dog"])[y])


def test_it_classifies_with_string_labels_and_probabilities_that_sum_to_one(fitted):
    _, _, queries, labels, _ = blobs()
    names = np.array(["ant", "bee", "cat", "dog"])[labels]
    assert fitted.score(queries, names) > 0.95
    p = fitted.predict_proba(queries)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_allclose(np.log(p), fitted.predict_log_proba(queries))
    np.testing.assert_array_equal(fitted.decision_function(queries).argmax(1), p.argmax(1))


def test_unseen_classes_have_higher_outlier_scores(fitted):
    _, _, queries, _, unseen = blobs()
    inside, outside = fitted.outlier_score(queries), fitted.outlier_score(unseen)
    assert (inside[:, None] < outside[None]).mean() > 0.9


@pytest.mark.parametrize("inference", ["propagation", "variational", "gibbs"])
def test_mean_logits_are_those_of_the_latent_posterior(inference):
    X, y, queries, _, _ = blobs(n_shot=2)
    model = OneVsEachClassifier(inference=inference, n_steps=1000, random_state=0).fit(X, y)
    mean, covariance = model.latent_mean_and_covariance(queries)
    np.testing.assert_allclose(mean, model.decision_function(queries), rtol=1e-8, atol=1e-8)
    assert covariance.shape == (len(queries), 4, 4)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert np.isfinite(model.log_marginal_likelihood_)
    assert (model.r_hat_ is not None) == (inference == "gibbs")


def test_propagation_agrees_with_the_general_algorithm_of_gp():
    X, y, queries, _, _ = blobs()
    kernel = Cosine(3.0).double()
    model = OneVsEachClassifier(kernel=Cosine(0.0).double(), log_scale=3.0).fit(X, y)
    x, q, labels = torch.from_numpy(X), torch.from_numpy(queries), torch.from_numpy(y)
    with torch.no_grad():
        K, K_star = kernel(x), kernel(q, x)
        sites = fit_propagation(OneVsEachGP(), K, labels, 4).sites
        expected = OneVsEachGP().condition(K, labels, sites).query_mean(K_star)[0].numpy()
    centred = expected - expected.mean(1, keepdims=True)
    ours = model.decision_function(queries)
    assert np.abs(ours - ours.mean(1, keepdims=True) - centred).max() < 0.05 * np.abs(centred).max()


def test_chains_agree_with_propagation():
    X, y, queries, _, _ = blobs(n_way=3, n_shot=3)
    exact = OneVsEachClassifier(inference="gibbs", random_state=0).fit(X, y)
    assert exact.r_hat_ < 1.05
    quick = OneVsEachClassifier().fit(X, y)
    assert exact.log_scale_ == quick.log_scale_
    assert np.abs(exact.predict_proba(queries) - quick.predict_proba(queries)).mean() < 0.02


def test_chains_end_when_they_have_mixed_and_say_so_when_they_have_not():
    X, y, *_ = blobs(n_way=5, n_shot=5)
    short = OneVsEachClassifier(inference="gibbs", n_steps=40, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"R-hat is .* after 40 steps"):
        short.fit(X, y)
    assert short.r_hat_ > 1.1
    long = OneVsEachClassifier(inference="gibbs", random_state=0).fit(X, y)
    again = OneVsEachClassifier(inference="gibbs", random_state=0, n_steps=10**6).fit(X, y)
    assert long.r_hat_ < 1.05
    np.testing.assert_array_equal(again.weights_, long.weights_)
    with pytest.warns(ConvergenceWarning, match="R-hat is nan"):
        OneVsEachClassifier(inference="gibbs", n_steps=3, random_state=0).fit(X, y)


def test_one_shot_leaves_the_scale_to_the_prior_and_many_overrule_it():
    X, y, *_ = blobs(n_shot=1)
    prior = OneVsEachClassifier().fit(X, y).log_scale_
    generator = np.random.default_rng(0)
    noise, labels = generator.standard_normal((120, 64)), np.repeat(np.arange(4), 30)
    assert OneVsEachClassifier().fit(noise, labels).log_scale_ < prior - 1


def test_adding_examples_ends_where_fitting_all_would():
    X, y, queries, _, _ = blobs(n_way=5, n_shot=6)
    first = y < 4
    model = OneVsEachClassifier(kernel="rbf", log_scale=3.0).fit(X[first], y[first])
    unit = model.covariance_
    model.add(X[~first], y[~first])
    assert list(model.classes_) == [0, 1, 2, 3, 4]
    afresh = OneVsEachClassifier(kernel="rbf", log_scale=3.0).fit(X[first], y[first])
    afresh.X_fit_, afresh.labels_, afresh.classes_, afresh.covariance_ = X, y, np.arange(5), unit
    afresh._condition(afresh._support_covariance())
    order = np.argsort(np.r_[np.flatnonzero(first), np.flatnonzero(~first)])
    np.testing.assert_allclose(model.weights_.numpy()[order], afresh.weights_.numpy(), atol=5e-3)
    np.testing.assert_allclose(model.predict_proba(queries), afresh.predict_proba(queries), atol=2e-3)


def test_scale_and_centre_are_chosen_anew_once_the_examples_have_doubled(tmp_path):
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


def test_length_counts_where_there_are_few_features_and_direction_where_there_are_many():
    generator = np.random.default_rng(0)
    for dim, name in ((2, "rbf"), (128, "cosine")):
        near = generator.standard_normal((60, dim))
        near /= np.linalg.norm(near, axis=1, keepdims=True)
        X, y = np.concatenate([near, 3 * near]), np.repeat([0, 1], 60)
        model = OneVsEachClassifier().fit(X[::2], y[::2])
        assert model.covariance_.kernel == name
        assert (model.score(X[1::2], y[1::2]) > 0.9) == (dim == 2)


def test_the_order_of_the_examples_does_not_matter():
    X, y, queries, _, _ = blobs()
    order = np.random.default_rng(1).permutation(len(y))
    one, other = OneVsEachClassifier().fit(X, y), OneVsEachClassifier().fit(X[order], y[order])
    np.testing.assert_allclose(one.predict_proba(queries), other.predict_proba(queries), atol=1e-6)


@pytest.mark.parametrize("kernel", ["cosine", "linear", "rbf", "normalized-rbf", Cosine(1.0), lambda x, z: x @ z.T])
def test_every_kind_of_kernel_classifies(kernel):
    X, y, queries, labels, _ = blobs()
    assert OneVsEachClassifier(kernel=kernel).fit(X, y).score(queries, labels) > 0.9


def test_tensors_are_taken_and_arrays_returned(fitted):
    X, y, queries, _, _ = blobs()
    p = OneVsEachClassifier().fit(torch.from_numpy(X), torch.from_numpy(y)).predict_proba(torch.from_numpy(queries))
    assert isinstance(p, np.ndarray)
    np.testing.assert_allclose(p, fitted.predict_proba(queries))


def test_views_that_run_backwards_are_taken():
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier().fit(X[:, ::-1], y)
    np.testing.assert_array_equal(model.predict_proba(queries[:, ::-1]), model.predict_proba(queries[:, ::-1].copy()))


def test_it_works_inside_scikit_learns_tools():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    pipeline = make_pipeline(StandardScaler(), OneVsEachClassifier(log_scale=3.0))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.85
    grid = GridSearchCV(OneVsEachClassifier(log_scale=3.0), {"kernel": ["cosine", "rbf"]}, cv=2).fit(X, y)
    assert grid.best_score_ > 0.85
    calibrated = CalibratedClassifierCV(OneVsEachClassifier(log_scale=3.0), cv=2).fit(X, y)
    assert calibrated.predict_proba(X).shape == (len(X), 3)
    copy = clone(pipeline[-1])
    assert copy.log_scale == 3.0
    assert not hasattr(copy, "classes_")


def test_feature_names_are_kept_and_other_names_refused(tmp_path):
    X, y, queries, _, _ = blobs(dim=4)
    frame, asked = (pd.DataFrame(x, columns=["a", "b", "c", "d"]) for x in (X, queries))
    model = OneVsEachClassifier().fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]
    np.testing.assert_allclose(model.predict_proba(asked), OneVsEachClassifier().fit(X, y).predict_proba(queries))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(asked.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature names"):
        model.add(asked[["d", "c", "b", "a"]], np.zeros(len(asked), int))
    model.save(tmp_path / "model")
    assert list(OneVsEachClassifier.load(tmp_path / "model").feature_names_in_) == ["a", "b", "c", "d"]


def test_it_ends_a_pipeline_whose_steps_give_data_frames():
    X, y, queries, labels, _ = blobs(dim=16)
    frame, asked = (pd.DataFrame(x).add_prefix("x") for x in (X, queries))
    pipeline = make_pipeline(StandardScaler(), OneVsEachClassifier()).set_output(transform="pandas").fit(frame, y)
    assert list(pipeline[-1].feature_names_in_) == list(frame.columns)
    assert isinstance(pipeline.predict_proba(asked), np.ndarray)
    assert pipeline.score(asked, labels) > 0.9


def test_a_user_may_pickle_it(fitted):
    queries = blobs()[2]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(queries), fitted.predict(queries))


def test_two_hundred_classes_are_no_trouble():
    X, y, queries, labels, _ = blobs(n_way=200, n_shot=2, n_query=1, dim=64)
    model = OneVsEachClassifier().fit(X, y)
    assert model.score(queries, labels) > 0.8
    np.testing.assert_allclose(model.predict_proba(queries).sum(1), 1)


@pytest.mark.parametrize("kernel", ["auto", "cosine", Cosine(1.5)])
def test_what_was_saved_is_what_is_loaded(tmp_path, kernel):
    X, y, queries, _, unseen = blobs()
    model = OneVsEachClassifier(kernel=kernel).fit(X, np.array(["a", "b", "c", "d"])[y])
    model.save(tmp_path / "model.safetensors")
    again = OneVsEachClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.predict_proba(queries), model.predict_proba(queries), rtol=1e-12)
    np.testing.assert_allclose(again.outlier_score(unseen), model.outlier_score(unseen), rtol=1e-12)
    np.testing.assert_allclose(
        again.latent_mean_and_covariance(queries)[1], model.latent_mean_and_covariance(queries)[1], rtol=1e-9
    )
    assert again.predict(queries).dtype == model.predict(queries).dtype
    again.add(unseen[:3], ["e", "e", "e"])
    assert "e" in again.classes_
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_files_that_are_not_a_classifier_are_refused(tmp_path, fitted):
    with pytest.raises(DataError, match="no such file"):
        OneVsEachClassifier.load(tmp_path / "none")
    (tmp_path / "text").write_text("not tensors")
    with pytest.raises(DataError, match="not a readable"):
        OneVsEachClassifier.load(tmp_path / "text")
    save_file({"x": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(DataError, match="was not written by"):
        OneVsEachClassifier.load(tmp_path / "foreign")
    fitted.save(tmp_path / "good")
    whole = (tmp_path / "good").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a readable"):
        OneVsEachClassifier.load(tmp_path / "cut")
    metadata = {"format": "polyshot.OneVsEachClassifier 2", "json": json.dumps({"classes": [1, 2]})}
    save_file({"X": torch.zeros(3, 2)}, tmp_path / "part", metadata)
    with pytest.raises(DataError, match="not a readable"):
        OneVsEachClassifier.load(tmp_path / "part")


def test_your_own_function_cannot_be_saved(tmp_path):
    X, y, *_ = blobs()
    with pytest.raises(InputError, match="kernel of your own"):
        OneVsEachClassifier(kernel=lambda x, z: x @ z.T).fit(X, y).save(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (np.where(X[0, 0] == X, np.nan, X), y), "NaN"),
        (lambda X, y: (np.where(X[0, 0] == X, np.inf, X), y), "infinity"),
        (lambda X, y: (X * 0, y), "every row of X is a zero vector"),
        (lambda X, y: (X, y * 0), "1 class"),
        (lambda X, y: (X[:1], y[:1]), "minimum of 2"),
    ],
)
def test_bad_data_is_refused_with_the_reason(change, message):
    X, y, *_ = blobs()
    with pytest.raises(ValueError, match=message):
        OneVsEachClassifier(kernel="cosine").fit(*change(X, y))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "cosin"}, "unknown kernel 'cosin'"),
        ({"kernel": 3}, "a kernel is a name"),
        ({"kernel": lambda x, z: x}, "returned the shape"),
        ({"inference": "magic"}, "unknown inference"),
        ({"log_scale": "large"}, "finite number"),
        ({"log_scale": np.nan}, "finite number"),
        ({"n_chains": 0}, "n_chains is a whole number"),
        ({"n_steps": 2.5}, "n_steps is a whole number"),
    ],
)
def test_bad_options_are_refused_with_the_choice_there_is(options, message):
    X, y, *_ = blobs()
    with pytest.raises(InputError, match=message):
        OneVsEachClassifier(**options).fit(X, y)


def test_an_impossible_fit_is_refused_at_once_with_the_memory_it_needs():
    X = np.random.default_rng(0).standard_normal((1_000_000, 2))
    with pytest.raises(InputError, match=r"1,000,000 examples of 2 classes need about .* GB"):
        OneVsEachClassifier().fit(X, (X[:, 0] > 0).astype(int))


def test_constant_features_and_zero_rows_do_no_harm():
    X, y, queries, labels, _ = blobs()
    X[:, 3] = 7.0
    X[2] = 0
    queries[0] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = OneVsEachClassifier(kernel="cosine").fit(X, y).predict_proba(queries)
    assert np.isfinite(p).all()
    assert (p.argmax(1) == labels)[1:].mean() > 0.9


def test_a_new_feature_count_and_an_unfitted_model_are_refused(fitted):
    with pytest.raises(ValueError, match="32 features"):
        fitted.predict(np.zeros((2, 5)))
    with pytest.raises(NotFittedError):
        OneVsEachClassifier().predict(np.zeros((2, 5)))


def test_a_part_of_many_examples_chooses_a_scale_as_good_as_all_would(monkeypatch):
    X, y, queries, labels, _ = blobs(n_way=6, n_shot=30, n_query=50, dim=8)
    by_all = OneVsEachClassifier().fit(X, y)
    monkeypatch.setattr(hyperparameters, "_MOST_EXAMPLES", 100)
    by_part = OneVsEachClassifier().fit(X, y)
    assert by_part.log_scale_ != by_all.log_scale_
    losses = [-m.predict_log_proba(queries)[np.arange(len(labels)), labels].mean() for m in (by_all, by_part)]
    assert losses[1] < 1.05 * losses[0]


def test_the_part_has_equal_classes_or_some_classes_with_ten_examples(monkeypatch):
    monkeypatch.setattr(hyperparameters, "_MOST_EXAMPLES", 100)
    equal = hyperparameters._representatives(torch.arange(6).repeat(30), 6)
    assert (equal % 6).bincount().tolist() == [16] * 6
    some = hyperparameters._representatives(torch.arange(40).repeat(5), 40)
    assert (some % 40).bincount().tolist() == [5] * 20
