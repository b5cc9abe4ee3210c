"""Many examples: the fit by features answers as the fit by the kernel matrix does, or nearly where it must."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blobs import blobs

from polyshot import OneVsEachClassifier
from polyshot.errors import InputError
from polyshot.estimator import hyperparameters, memory, projection
from polyshot.gp import FactoredKernel, fit_tied_propagation


def by_features(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    for module in (projection, hyperparameters):
        monkeypatch.setattr(module, "feature_space_is_cheaper", lambda *_: wanted)
    monkeypatch.setattr(projection, "_EXAMPLES_PER_LANDMARK", 0)


def answers(model: OneVsEachClassifier, queries: np.ndarray) -> dict[str, Any]:
    mean, covariance = model.latent_mean_and_covariance(queries)
    return {
        "log_scale": model.log_scale_,
        "evidence": model.log_marginal_likelihood_,
        "mean": mean,
        "covariance": covariance,
        "log_probs": model.predict_log_proba(queries),
        "explained": model.explain(queries),
        "suspects": model.suspect_labels()[1],
        "accuracy": model.expected_accuracy(),
        "p": model.predict_p(queries),
    }


@pytest.mark.parametrize("kernel", ["cosine", "linear", "dkt-cosine", "rbf", "normalized-rbf"])
def test_both_forms_answer_alike(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two classes nothing is averaged. The RBFs have every example as a landmark, so none is added later."""
    X, y, queries, *_ = blobs(n_way=2, n_shot=30, n_query=5, dim=6)
    models, first = [], 0 if "rbf" in kernel else 10
    for wanted in (False, True):
        by_features(monkeypatch, wanted)
        models.append(OneVsEachClassifier(kernel).fit(X[first:], y[first:]))
        if first:
            models[-1].add(X[:first], y[:first])
    assert [m.fitted_.projection is not None for m in models] == [False, True]
    matrix, features = (answers(model, queries) for model in models)
    for name in matrix:
        np.testing.assert_allclose(features[name], matrix[name], rtol=1e-8, atol=1e-8, err_msg=name)


def test_with_a_variance_for_each_pair_the_sweeps_are_the_same() -> None:
    g = torch.Generator().manual_seed(0)
    phi, y = 2 * torch.randn(60, 5, generator=g, dtype=torch.float64), torch.arange(60) % 6
    phi[:, 0] += y / 2
    matrix, features = (fit_tied_propagation(K, y, 6) for K in (phi @ phi.mT, FactoredKernel(phi)))
    assert matrix[0].n_sweeps == features[0].n_sweeps
    torch.testing.assert_close(features[0].kappa, matrix[0].kappa, rtol=1e-8, atol=1e-8)
    assert features[0].log_evidence == pytest.approx(matrix[0].log_evidence, abs=1e-8)
    torch.testing.assert_close(phi @ features[1].a, matrix[1].f, rtol=1e-8, atol=1e-8)


def test_averaged_variances_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, queries, *_ = blobs(n_way=10, n_shot=20, n_query=40, dim=8)
    models = []
    for wanted in (False, True):
        by_features(monkeypatch, wanted)
        models.append(OneVsEachClassifier("cosine").fit(X, y))
    p, q = (model.predict_proba(queries) for model in models)
    assert 1e-6 < abs(p - q).max() < 0.02
    scores = [model.outlier_score(queries) for model in models]
    assert np.corrcoef(*scores)[0, 1] > 0.999


def test_the_form_is_chosen_by_cost() -> None:
    assert projection.n_features("cosine", 100, 4, 2) == 0  # so small that operations do not matter
    assert projection.n_features("cosine", 1000, 64, 10) == 65
    assert projection.n_features("linear", 2000, 1280, 10) == 0
    assert projection.n_features("rbf", 2000, 10, 5) == 0
    assert projection.n_features("rbf", 20_000, 10, 5) == 1001
    assert projection.n_features(lambda a, b: a @ b.T, 20_000, 10, 5) == 0


def test_p_values_that_would_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, queries, *_ = blobs()
    model = OneVsEachClassifier().fit(X, y)
    monkeypatch.setattr(memory, "memory_bytes", lambda: 8.0 * len(X) ** 2)
    for ask in (model.predict_p, model.predict_set, model.outlier_p_value, model.decide):
        with pytest.raises(InputError, match="p-values from 20 examples need"):
            ask(queries)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_model_by_features_is_stored(kernel: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    by_features(monkeypatch, True)
    monkeypatch.setattr(projection, "_LANDMARKS", 20)
    X, y, queries, *_ = blobs(n_way=3, n_shot=10, dim=6)
    model = OneVsEachClassifier(kernel).fit(X, y)
    expected = answers(model, queries), model.outlier_score(queries)
    model.save(tmp_path / "model.safetensors")
    again = OneVsEachClassifier.load(tmp_path / "model.safetensors")
    for name, value in answers(again, queries).items():
        np.testing.assert_allclose(value, expected[0][name], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(again.outlier_score(queries), expected[1], rtol=1e-10)
