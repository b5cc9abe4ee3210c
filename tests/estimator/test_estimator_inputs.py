import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from blobs import blobs
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier
from polyshot.estimator.covariance import out_of_reach


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


def test_arrays_that_may_not_be_written_to_are_taken_without_a_warning(tmp_path):
    X, y, queries, _, _ = blobs()
    weights = np.ones(len(y))
    torch.set_warn_always(True)  # torch would warn once per process
    try:
        for array in (X, y, queries, weights):
            array.flags.writeable = False
        model = OneVsEachClassifier().fit(X, y, sample_weight=weights).add(X[:2], y[:2])
        model.predict_set(queries)
        model.next_to_label(queries, 1)
        model.explain(queries[:1])
        model.save(tmp_path / "m")
        OneVsEachClassifier(unlabeled=y[0]).fit(X, y).predict_proba(queries)  # a label of numpy's own type
    finally:
        torch.set_warn_always(False)


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
        ({"log_scale": -700}, "a number from -20 to 20, not -700"),
        ({"log_scale": 800.0}, "a number from -20 to 20, not 800.0"),
        ({"log_scale": 10**400}, "a number from -20 to 20, not a huge integer"),
        ({"kernel": lambda x, z: {}["x"]}, "the kernel failed with KeyError: 'x'"),
        ({"kernel": lambda x, z: np.full((len(x), len(z)), np.nan)}, "diagonal holds NaN"),
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


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0, np.nan], "10 missing labels .* of 20; drop those rows"),
        (["a", None], "10 missing labels"),
        (pd.array(["a", pd.NA], dtype="string"), "10 missing labels"),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), "not dates"),
        (np.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], dtype=object), "not dates"),
        ([2**70, 1], "do not fit into one 64-bit integer type"),
        ([2**63, -1], "do not fit into one 64-bit integer type"),
        (np.array(["a", 1], dtype=object), r"Unknown label type: objects \(int, str\)"),
        (torch.zeros(2, device="meta"), "y is a tensor on the meta device"),
        ([torch.zeros((), device="meta")] * 2, r"y cannot be turned into an array \(TypeError: can't convert meta"),
        ([[1], [1, 2]], "y cannot be turned into an array"),
        (np.ma.masked_array([0, 1], [0, 1]), "y has masked values"),
        (np.array([(1,), (2,)], dtype=[("a", int)]), "must be strings or numbers, not"),
        ([b"a", b"b"], "labels must be strings or numbers, not bytes"),
    ],
)
def test_labels_that_cannot_be_used_are_refused_with_the_reason(labels, message):
    X, *_ = blobs()
    y = labels * 10 if isinstance(labels, list) else labels.repeat(10)
    with pytest.raises(InputError, match=message):
        OneVsEachClassifier().fit(X, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: torch.zeros(X.shape, device="meta"), "X is a tensor on the meta device"),
        (lambda X: torch.from_numpy(X).to_sparse(), "X is a sparse tensor"),
        (lambda X: [[10**400] * X.shape[1]] * len(X), "integers too large for a float"),
        (lambda X: pd.DataFrame(X, columns=["a"] * X.shape[1]), "more than one column named a"),
        (lambda X: X.astype("M8[D]"), "X holds dates"),
        (lambda X: pd.DataFrame({"a": X[:, 0], "b": pd.Timestamp("2020")}), "could not be promoted"),
        (lambda X: np.ma.masked_array(X, X > 0), "X has masked values"),
        (lambda X: {"a": X}, "must be a string or a real number, not 'dict'"),
        (lambda X: torch.zeros(X.shape, dtype=torch.bits8), "X cannot be turned into an array .*Bits8"),
        (lambda X: csr_array((X[:, 0], np.full(len(X), 99), np.arange(len(X) + 1)), shape=X.shape), "must be < "),
    ],
)
def test_features_that_cannot_be_used_are_refused_with_the_reason(change, message):
    X, y, *_ = blobs()
    with pytest.raises(InputError, match=message):
        OneVsEachClassifier().fit(change(X), y)


def test_tensors_with_the_negative_or_conjugate_bit_are_taken(fitted):
    X, y, queries, _, _ = blobs()
    negative = torch.complex(torch.zeros(X.shape, dtype=torch.float64), torch.from_numpy(-X)).conj().imag
    assert negative.is_neg()
    names = np.array(["ant", "bee", "cat", "dog"])[y]
    p = OneVsEachClassifier().fit(negative, names).predict_proba(queries)
    np.testing.assert_allclose(p, fitted.predict_proba(queries))
    with pytest.raises(ValueError, match="Complex data not supported"):
        OneVsEachClassifier().fit(torch.from_numpy(X).to(torch.complex128).conj(), y)


def test_labels_of_numpys_strings_of_any_length_are_taken():
    X, y, queries, *_ = blobs(n_way=2)
    names = np.array(["no", "yes"], dtype=np.dtypes.StringDType())[y]
    assert set(OneVsEachClassifier().fit(X, names).predict(queries)) == {"no", "yes"}


@pytest.mark.parametrize(
    "call",
    [
        lambda model, X, bad: model.remove(bad),
        lambda model, X, bad: model.predict_proba(X, class_prior=bad),
        lambda model, X, bad: model.explain(X, bad),
        lambda model, X, bad: model.score(X, bad),
        lambda model, X, bad: model.add(X, bad, sample_weight=bad),
    ],
)
def test_every_argument_takes_tensors_and_names_what_it_cannot_take(call, fitted):
    X, *_ = blobs()
    for bad in (torch.zeros(2, device="meta"), [[1], [1, 2]]):
        with pytest.raises(InputError, match=r"on the meta device|cannot be turned into an array"):
            call(fitted, X[:2], bad)
    prior = torch.complex(torch.zeros(4), -torch.ones(4)).conj().imag
    assert prior.is_neg()
    np.testing.assert_array_equal(
        fitted.predict_proba(X, class_prior=prior), fitted.predict_proba(X, class_prior=[1] * 4)
    )


def test_signed_and_unsigned_labels_stay_integers():
    X, y, *_ = blobs()
    model = OneVsEachClassifier(log_scale=3.0).fit(X, y)
    assert model.add(X[:2], np.array([1, 9], dtype=np.uint64)).classes_.dtype == np.int64
    assert model.add(X[:1], np.array([2**63], dtype=np.uint64)).classes_.tolist() == [0, 1, 2, 3, 9, 2**63]
    with pytest.raises(InputError, match="no integer type holds labels from -1"):
        model.add(X[:1], np.array([-1]))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("value", [0.1, 1e9])
def test_rows_that_are_all_alike_are_answered_by_how_frequent_the_classes_are(kernel, value):
    X, y = np.full((20, 8), value), np.repeat([0, 1], [15, 5])
    p = OneVsEachClassifier(kernel).fit(X, y).predict_proba(X)[:, 0]
    np.testing.assert_allclose(p, 0.75, atol=0.02)


@pytest.mark.parametrize("far", [1e9, 1e20, 1e300])
def test_a_row_too_far_away_for_the_rbf_is_refused(far):
    X, y, *_ = blobs()
    X[3] = far
    with pytest.raises(
        InputError, match=rf"typical distances from the others.*it begins with {far:.3g}".replace("+", r"\+")
    ):
        OneVsEachClassifier("rbf").fit(X, y)
    assert out_of_reach("rbf", torch.from_numpy(X)).nonzero().tolist() == [[3]]
    assert not out_of_reach("cosine", torch.from_numpy(X)).any()


def test_covariances_that_overflow_are_refused_where_the_means_do_not():
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier("linear", inference="gibbs", n_steps=200, log_scale=1.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    assert np.isfinite(model.decision_function(1e160 * queries)).all()
    with pytest.raises(InputError, match="their posterior covariance contains NaN or infinity"):
        model.latent_mean_and_covariance(1e160 * queries)


def test_a_second_fit_that_fails_leaves_the_first_model(fitted):
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier().fit(pd.DataFrame(X).add_prefix("x"), y)
    before = model.predict_proba(pd.DataFrame(queries).add_prefix("x"))
    for bad_X, bad_y in ((X[:, :5], y * 0), (np.full_like(X, np.nan), y), (X, y + 0.5)):
        with pytest.raises(ValueError, match=r"class|NaN|Unknown label"):
            model.fit(bad_X, bad_y)
    model.kernel = lambda x, z: 1 / 0
    with pytest.raises(InputError, match="ZeroDivisionError"):
        model.fit(X[:, :5], y)
    np.testing.assert_array_equal(model.predict_proba(pd.DataFrame(queries).add_prefix("x")), before)
    assert (model.n_features_in_, len(model.feature_names_in_)) == (32, 32)
    model.kernel = "auto"
    assert not hasattr(model.fit(X, y), "feature_names_in_")


def test_add_checks_the_parameters():
    X, y, *_ = blobs()
    model = OneVsEachClassifier(log_scale=3.0).fit(X, y)
    model.n_steps = 0
    with pytest.raises(InputError, match="n_steps must be a whole number"):
        model.add(X, y)
