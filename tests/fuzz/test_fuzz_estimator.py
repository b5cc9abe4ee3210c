"""Random calls of OneVsEachClassifier: each ends in a right answer or in an error of ours that leaves it as it was."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fuzzing import OURS, assert_explained, count, fuzz_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from sklearn.exceptions import ConvergenceWarning

from polyshot.estimator import OneVsEachClassifier

SHAPES = ["normal", "duplicates", "constant", "zeros", "parallel", "whole"]
MAGNITUDES = [0.0, 1e-310, 1e-160, 1e-20, 1e-3, 1.0, 1e3, 1e20, 1e160, 1e307]
DTYPES = ["float64", "float32", "float16", "int64", "int8", "uint8", "bool", "object", "longdouble"]
CONTAINERS = [
    "array", "list", "tuple", "fortran", "reversed", "frozen", "frame", "tensor", "gradient", "negated", "masked",
]  # fmt: skip
DAMAGE = [
    "nan", "infinity", "one column more", "flat", "deep", "no rows", "no columns", "text", "none", "dates", "huge int",
]  # fmt: skip
LABELS = {
    "texts": ["b", "a", "=c", "naïve", "\u202eno", ""],
    "integers": [3, -7, 0, 12, 2**53, 5],
    "beyond 64 bits": [2**63, 2**64, -1, 0, 1, 2],
    "unsigned": [np.uint64(2**63 + n) for n in range(6)],
    "booleans": [True, False],
    "whole floats": [1.0, 2.0, -3.0, 1e15, 0.0, 7.0],
    "fractions": [0.5, 1.5, 2.5],
    "missing": ["a", None, "b"],
    "not numbers": [1.0, float("nan"), 2.0],
    "mixed": ["a", 1, 2.5],
    "dates": [np.datetime64("2020-01-01"), np.datetime64("2021-01-01"), np.datetime64("NaT")],
    "one class": ["only"],
    "tuples": [(1, 2), (3, 4)],
    "bytes": [b"a", b"b"],
}
GOOD_LABELS = ["texts", "integers", "booleans", "whole floats"]
LABEL_CONTAINERS = ["array", "list", "objects", "series", "categorical", "tensor", "column", "long strings"]
PERMUTATIONS = np.random.default_rng(5)


@st.composite
def features(draw, n, d):
    """Rows as a user may have them, and whether they were damaged on purpose."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n, d))
    shape = draw(st.sampled_from(SHAPES))
    if shape == "duplicates":
        X = X[rng.integers(0, max(1, n // 2), n)]
    elif shape == "constant":
        X[:] = X[:1]
    elif shape == "zeros":
        X[:] = 0
    elif shape == "parallel":
        X = X[:1] * (1 + 1e-9 * X)
    elif shape == "whole":
        X = np.rint(10 * X)
    usual = draw(st.booleans())
    scale, offset = (1.0, 0.0) if usual else (draw(st.sampled_from(MAGNITUDES)), draw(st.sampled_from(MAGNITUDES)))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = (offset + scale * X).astype(draw(st.sampled_from(DTYPES)))
    damage = draw(st.sampled_from(["", "", "", "", *DAMAGE]))
    return contained(damaged(X, damage), draw(st.sampled_from(CONTAINERS)))


def damaged(X, how):
    changes = {
        "nan": lambda: np.where(np.arange(X.size).reshape(X.shape) == X.size - 1, np.nan, X.astype(float)),
        "infinity": lambda: np.where(np.arange(X.size).reshape(X.shape) == 0, -np.inf, X.astype(float)),
        "one column more": lambda: np.hstack([X, X[:, :1]]),
        "flat": lambda: X[:, 0],
        "deep": lambda: X[:, :, None],
        "no rows": lambda: X[:0],
        "no columns": lambda: X[:, :0],
        "text": lambda: np.full(X.shape, "word"),
        "none": lambda: np.full(X.shape, None),
        "dates": lambda: np.full(X.shape, np.datetime64("NaT", "D")),
        "huge int": lambda: np.full(X.shape, 10**400, dtype=object),
    }
    return changes[how]() if how else X


def contained(X, container):
    numeric = X.dtype.kind in "fiub" and X.dtype != np.longdouble
    if container == "list":
        return X.tolist()
    if container == "tuple":
        return tuple(map(tuple, X.tolist())) if X.ndim == 2 else tuple(X.tolist())
    if container == "fortran":
        return np.asfortranarray(X)
    if container == "reversed":
        return np.ascontiguousarray(X[::-1])[::-1]
    if container == "frozen":
        X = X.copy()
        X.flags.writeable = False
    if container == "masked":
        return np.ma.masked_array(X, np.arange(X.size).reshape(X.shape) == 0)
    if container == "frame" and X.ndim == 2:
        # with `dtype`, because pandas below 3.1 fails to find the type of integers that no float can hold
        return pd.DataFrame(X, dtype=float if X.dtype == np.longdouble else object if X.dtype == object else None)
    if container in ("tensor", "gradient", "negated") and numeric:
        x = torch.from_numpy(np.ascontiguousarray(X))
        if container == "gradient" and x.is_floating_point():
            return x.requires_grad_()
        if container == "negated" and x.is_floating_point():
            return torch.complex(torch.zeros_like(x.double()), x.double()).conj().imag  # has the negative bit
        return x
    return X


@st.composite
def labels(draw, n, kind):
    if draw(st.integers(0, 7)) == 0:
        kind = draw(st.sampled_from(list(LABELS)))
    names = LABELS[kind]
    names = names[: draw(st.integers(1, len(names)))]
    y = [names[i % len(names)] for i in draw(st.permutations(range(n)))]
    if draw(st.integers(0, 15)) == 0:
        y = y[1:]  # one label too few
    container = draw(st.sampled_from(LABEL_CONTAINERS))
    whole = all((type(x) is int and abs(x) < 2**63) or type(x) is bool for x in y)
    if container == "list" or kind in ("tuples", "beyond 64 bits", "mixed"):
        return y
    if container == "objects":
        return np.array(y, dtype=object)
    if container == "series":
        return pd.Series(y)
    if container == "long strings" and kind == "texts":
        return np.array(y, dtype=np.dtypes.StringDType())
    if container == "categorical" and kind in GOOD_LABELS:
        return pd.Categorical(y)
    if container == "tensor" and whole:
        return torch.tensor(y)
    return np.array(y)[:, None] if container == "column" else np.array(y)


TOLD = []  # the warnings of the last attempt: that a fit has not converged


def attempt(call):
    """The answer; None if it was refused, with a reason."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ConvergenceWarning)  # that is told, so not silent
        warnings.filterwarnings("ignore", "A column-vector y was passed")  # scikit-learn's own
        try:
            answer = call()
        except OURS as error:
            assert_explained(error)
        else:
            count("answer")
            return answer
        finally:
            TOLD[:] = told
    count("refusal")
    return None


class Calls(RuleBasedStateMachine):
    """One classifier in the hands of a user who tries everything."""

    def __init__(self):
        super().__init__()
        self.model = OneVsEachClassifier()
        self.d = 2
        self.kind = "texts"

    def fitted(self):
        return hasattr(self.model, "fitted_")

    @rule(
        data=st.data(),
        n=st.integers(1, 9),
        d=st.sampled_from([1, 2, 3, 5, 101]),
        kind=st.sampled_from([*GOOD_LABELS, "texts", "integers"]),
        kernel=st.sampled_from(["auto", "auto", "cosine", "linear", "rbf", "normalized-rbf", "dkt-cosine", "unheard"]),
        inference=st.sampled_from(["auto", "auto", "auto", "variational", "gibbs"]),
        log_scale=st.sampled_from(["auto", "auto", 0.0, -20, 20, 21, float("nan"), None]),
    )
    def fit(self, data, n, d, kind, kernel, inference, log_scale):
        before = self.model.__dict__.copy()
        self.model.set_params(kernel=kernel, inference=inference, log_scale=log_scale, n_steps=30, random_state=0)
        X, y = data.draw(features(n, d)), data.draw(labels(n, kind))
        if attempt(lambda: self.model.fit(X, y)) is None:
            self.model.__dict__ = before  # with the parameters of the fit that there is
        else:
            self.d, self.kind = self.model.n_features_in_, kind
            if not TOLD:
                self.check_names_and_order()

    @precondition(fitted)
    @rule(data=st.data(), n=st.integers(1, 4), d_more=st.sampled_from([0, 0, 0, 0, 1]))
    def add(self, data, n, d_more):
        model, n_before = self.model.fitted_, len(self.model.fitted_.examples.X)
        X, y = data.draw(features(n, self.d + d_more)), data.draw(labels(n, self.kind))
        if attempt(lambda: self.model.add(X, y)) is None:
            assert self.model.fitted_ is model
        else:
            assert len(self.model.fitted_.examples.X) == n_before + n

    @precondition(fitted)
    @rule(data=st.data(), n=st.integers(0, 4))
    def predict(self, data, n):
        X = data.draw(features(n, self.d))
        probs = attempt(lambda: self.model.predict_proba(X))
        if probs is None:
            return
        self.check_probabilities(probs)
        names = attempt(lambda: self.model.predict(X))
        assert names.dtype == self.model.classes_.dtype
        assert (
            probs[np.arange(len(names)), np.searchsorted(self.model.classes_, names)].min() >= probs.max(1).min() - 1e-9
        )
        scores = attempt(lambda: self.model.outlier_score(X))
        assert scores is None or np.isfinite(scores).all()
        moments = attempt(lambda: self.model.latent_mean_and_covariance(X))
        assert moments is None or all(np.isfinite(x).all() for x in moments)

    @precondition(fitted)
    @rule(data=st.data(), level=st.sampled_from([0.5, 0.9, 0.99, 1.0, 0, "x"]), per_class=st.booleans())
    def predict_set(self, data, level, per_class):
        X = data.draw(features(2, self.d))
        sets = attempt(lambda: self.model.predict_set(X, level, per_class=per_class))
        if sets is not None:
            assert sets.shape == (2, len(self.model.classes_))
            p = self.model.predict_p(X, per_class=per_class)
            assert ((p > 0) & (p <= 1)).all()
            assert len(attempt(lambda: self.model.decide(X, level))) == 2

    @precondition(fitted)
    @rule(data=st.data())
    def save_and_load(self, data):
        queries = self.model.fitted_.examples.X[:3]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            self.model.save(path)
            again = OneVsEachClassifier.load(path)
        assert again.get_params() == self.model.get_params()
        assert again.classes_.tolist() == self.model.classes_.tolist()
        mine, theirs = (attempt(lambda m=m: m.predict_log_proba(queries)) for m in (self.model, again))
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(theirs, mine, rtol=1e-10, atol=1e-10)
        self.model = again

    def check_probabilities(self, probs):
        assert probs.shape[1] == len(self.model.classes_)
        assert np.isfinite(probs).all()
        np.testing.assert_allclose(probs.sum(1), 1, atol=1e-9)

    def check_names_and_order(self):
        """The same examples in another order, with classes of other names, get the same probabilities."""
        if self.model.inference == "gibbs":
            return
        examples = self.model.fitted_.examples
        order, renamed = (PERMUTATIONS.permutation(n) for n in (len(examples.X), len(examples.classes)))
        other = OneVsEachClassifier(**self.model.get_params())
        if attempt(lambda: other.fit(examples.X[order], renamed[examples.labels][order])) is None:
            # exp(20) leaves half of the digits: equal rows of different classes are at the border of what is refused
            assert self.model.log_scale == 20, "refused in another order"
            return
        if TOLD:
            return
        mine, theirs = (attempt(lambda m=m: m.predict_proba(examples.X)) for m in (self.model, other))
        assert (mine is None) == (theirs is None)
        if mine is not None:
            self.check_probabilities(mine)
            np.testing.assert_allclose(theirs[:, renamed], mine, atol=1e-4)


TestCalls = Calls.TestCase
TestCalls.settings = fuzz_settings(150, stateful_step_count=5)
