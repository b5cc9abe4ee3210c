import numpy as np
import pytest

from polyshot import OneVsEachClassifier


@pytest.mark.parametrize("inference", ["propagation", "gibbs"])
def test_one_rare_example_among_nearly_parallel_rows_stays_rare(inference):
    X = 300 + 10 * np.random.default_rng(0).normal(size=(20, 128))
    y = np.r_[np.zeros(19, int), 1]
    model = OneVsEachClassifier(inference=inference, random_state=0).fit(X, y)
    queries = 300 + 10 * np.random.default_rng(1).normal(size=(50, 128))
    # Slice sampling gives 0.025, general expectation propagation 0.026.
    assert model.predict_proba(queries)[:, 1].mean() == pytest.approx(0.025, abs=0.008)
    assert model.log_marginal_likelihood_ < 0
