import warnings

import numpy as np
import pytest
import torch
from blobs import blobs
from sklearn.exceptions import NotFittedError

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier


def test_tensors_are_taken_and_arrays_returned(fitted):
    X, y, queries, _, _ = blobs()
    p = OneVsEachClassifier().fit(torch.from_numpy(X), torch.from_numpy(y)).predict_proba(torch.from_numpy(queries))
    assert isinstance(p, np.ndarray)
    np.testing.assert_allclose(p, fitted.predict_proba(queries))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_tensors_of_every_precision_are_taken(dtype):
    X, y, queries, labels, _ = blobs()
    model = OneVsEachClassifier().fit(torch.tensor(X, dtype=dtype, requires_grad=True), torch.from_numpy(y))
    assert model.score(torch.tensor(queries, dtype=dtype), labels) > 0.9


def test_views_that_run_backwards_are_taken():
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier().fit(X[:, ::-1], y)
    np.testing.assert_array_equal(model.predict_proba(queries[:, ::-1]), model.predict_proba(queries[:, ::-1].copy()))


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
        ({"kernel": 3}, "kernel must be a name"),
        ({"kernel": lambda x, z: x}, "returned the shape"),
        ({"inference": "magic"}, "unknown inference"),
        ({"log_scale": "large"}, "a number from -20 to 20, not 'large'"),
        ({"log_scale": np.nan}, "a number from -20 to 20, not nan"),
        ({"n_chains": 0}, "n_chains must be a whole number"),
        ({"n_steps": 2.5}, "n_steps must be a whole number"),
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


def test_added_labels_of_another_kind_are_refused():
    X, y, *_ = blobs(n_way=2)
    kinds = {
        "integers": [y, y.astype(np.uint8), torch.from_numpy(y)],
        "strings": [np.array(["no", "yes"])[y], np.array(["no", "yes"], dtype=object)[y]],
        "booleans": [y > 0],
        "floats": [y.astype(float), y.astype(np.float32)],
    }
    for first, labels in kinds.items():
        model = OneVsEachClassifier(log_scale=3.0).fit(X, labels[0])
        for second, others in kinds.items():
            for other in others:
                if first == second:
                    assert len(model.add(X[:2], other[:2]).classes_) == 2
                else:
                    with pytest.raises(InputError, match=f"labels are {first} so far, not {second}"):
                        model.add(X, other)


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
    for method in ("predict", "predict_proba", "decision_function", "outlier_score", "latent_mean_and_covariance"):
        with pytest.raises(NotFittedError):
            getattr(OneVsEachClassifier(), method)(np.zeros((2, 5)))


@pytest.mark.parametrize("kernel", ["cosine", "linear", "rbf", "normalized-rbf"])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_the_other_queries_do_not_matter_to_the_answer(kernel, shift):
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier(kernel, log_scale=3.0).fit(X + shift, y)
    alone = model.predict_proba(queries + shift)
    among = model.predict_proba(np.concatenate([queries + shift, np.full((1, 32), 1e9)]))[:-1]
    np.testing.assert_allclose(among, alone, rtol=1e-9)
