"""Sparse rows (TF-IDF) give the answers of the same rows as a dense array, and are never made dense."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from polyshot import OneVsEachClassifier
from polyshot.errors import InputError
from polyshot.estimator import rows


def random_sparse(shape: tuple[int, int], n: int) -> csr_array:
    """About n entries between 0 and 1."""
    g = np.random.default_rng(0)
    return csr_array((g.random(n), tuple(g.integers(size, size=n) for size in shape)), shape)


def task(n: int = 24, d: int = 150, negative: bool = False) -> tuple[csr_array, np.ndarray, csr_array]:
    X = random_sparse((n + 6, d), (n + 6) * d // 10)
    X.data -= 0.3 * negative
    y = np.arange(n) % 3
    X = csr_array(X + csr_array(np.eye(d)[:3][np.r_[y, np.arange(6) % 3]]))
    X[[2, n + 1]] *= 0  # rows without a word
    return csr_array(X[:n]), y, csr_array(X[n:])


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("kernel", ["auto", "dkt-cosine", "linear"])
def test_sparse_rows_are_answered_as_dense_ones(kernel: str, negative: bool, tmp_path: Path) -> None:
    X, y, queries = task(negative=negative)
    dense = OneVsEachClassifier(kernel).fit(X[:20].toarray(), y[:20]).add(X[20:].toarray(), y[20:])
    sparse = OneVsEachClassifier(kernel).fit(X[:20], y[:20]).add(X[20:], y[20:])
    sparse.save(tmp_path / "model.safetensors")
    for model in (sparse, OneVsEachClassifier.load(tmp_path / "model.safetensors")):
        for ask in ("predict_log_proba", "outlier_score", "predict_p", "outlier_p_value", "explain"):
            np.testing.assert_allclose(
                getattr(model, ask)(queries), getattr(dense, ask)(queries.toarray()), rtol=1e-8, atol=1e-8
            )
        for ours, theirs in zip(
            model.latent_mean_and_covariance(queries), dense.latent_mean_and_covariance(queries.toarray()), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    assert sparse.remove([0, 5]).predict(queries).tolist() == dense.remove([0, 5]).predict(queries.toarray()).tolist()


def test_the_order_of_entries_and_stored_zeros_do_not_matter() -> None:
    X, y, queries = task()
    other = csr_matrix(X[:, ::-1])[:, ::-1]
    other.data[:3] = 0
    X = csr_array(other)
    X.eliminate_zeros()
    one, two = (OneVsEachClassifier().fit(x, y).predict_proba(queries) for x in (X, other))
    np.testing.assert_array_equal(one, two)


def test_many_columns_are_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    X = random_sparse((60, 2_000_000), 1_200)
    y = np.arange(60) % 2
    sizes = []
    toarray = csr_array.toarray
    monkeypatch.setattr(csr_array, "toarray", lambda x, *a, **o: sizes.append(x.shape) or toarray(x, *a, **o))
    model = OneVsEachClassifier().fit(X, y)
    assert model.predict_proba(X[:5]).shape == (5, 2)
    assert max(max(shape) for shape in sizes) == 60
    assert rows.content(X) is not None


@pytest.mark.parametrize("kernel", ["rbf", "normalized-rbf", lambda a, b: a @ b.T])
def test_other_kernels_say_what_to_do(kernel: object) -> None:
    X, y, _ = task()
    with pytest.raises(InputError, match="sparse X is for kernel='cosine', 'dkt-cosine', 'linear'"):
        OneVsEachClassifier(kernel).fit(X, y)


def test_dense_rows_join_sparse_ones_but_not_the_other_way_round() -> None:
    X, y, queries = task()
    model = OneVsEachClassifier().fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(queries.toarray()), model.predict_proba(queries))
    grown = OneVsEachClassifier().fit(X[:20], y[:20]).add(X[20:].toarray(), y[20:])
    expected = OneVsEachClassifier().fit(X[:20], y[:20]).add(X[20:], y[20:])
    np.testing.assert_array_equal(grown.predict_proba(queries), expected.predict_proba(queries))
    with pytest.raises(InputError, match="X is sparse, but the examples are not"):
        OneVsEachClassifier().fit(X.toarray(), y).add(X, y)
    with pytest.raises(InputError, match="rows without a label need dense X"):
        OneVsEachClassifier(unlabeled=2).fit(X, y)


def test_next_to_label_says_that_it_needs_dense_rows():
    X, y = csr_array(np.eye(4)), ["a", "a", "b", "b"]
    with pytest.raises(InputError, match="needs dense rows"):
        OneVsEachClassifier().fit(X, y).next_to_label(X)
