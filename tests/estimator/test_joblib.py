"""Work around the estimator runs in joblib's processes, also those of a Dask cluster."""

import numpy as np
import pytest
from blobs import blobs
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV, cross_val_score

from polyshot import OneVsEachClassifier


def scores(n_jobs: int | None = None) -> np.ndarray:
    X, y, *_ = blobs(n_way=3, n_shot=8)
    return cross_val_score(OneVsEachClassifier(), X, y, cv=4, scoring="neg_log_loss", n_jobs=n_jobs)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_folds_in_other_threads_and_processes_give_the_same_scores(backend: str) -> None:
    with parallel_config(backend, n_jobs=2):
        np.testing.assert_allclose(scores(), scores(1), rtol=1e-12)


def test_a_grid_runs_on_a_dask_cluster() -> None:
    distributed = pytest.importorskip("distributed")
    X, y, *_ = blobs(n_way=3, n_shot=8)
    grid = GridSearchCV(OneVsEachClassifier(), {"log_scale": [1.0, 3.0, "auto"]}, cv=2, scoring="neg_log_loss")
    expected = grid.fit(X, y).cv_results_["mean_test_score"]
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        parallel_config("dask"),
    ):
        found = grid.fit(X, y)
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], expected, rtol=1e-12)
    assert found.predict(X[:3]).tolist() == grid.predict(X[:3]).tolist()
