import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from blobs import blobs
from joblib import Parallel, delayed

from polyshot.estimator import OneVsEachClassifier

# In an interpreter of its own, with two threads: large work starts torch's threads, which do not survive a fork.
FORK = """
import multiprocessing, os, signal
import numpy as np, torch
from polyshot.estimator import OneVsEachClassifier
from polyshot.system import threads

rng = np.random.default_rng(0)
X, y, queries = rng.standard_normal((30, 16)), np.arange(30) % 3, rng.standard_normal((20_000, 16))
model = OneVsEachClassifier(log_scale=2.0).fit(X, y)
small, threads._SMALL = threads._SMALL, -1  # all threads, as large work has
expected = model.predict_proba(queries)
threads._SMALL = small

def answer(_):
    signal.alarm(60)  # a child that hangs must not stay
    again = OneVsEachClassifier(log_scale=2.0).fit(X, y)
    threads._SMALL = -1  # large work has one thread in a child, too
    answers = model.predict_proba(queries), again.predict_proba(queries)
    model.outlier_score(queries), model.latent_mean_and_covariance(queries)
    return all(np.abs(p - expected).max() < 1e-6 for p in answers)

assert torch.get_num_threads() == 2
child = os.fork()
if child == 0:
    os._exit(0 if answer(0) else 1)
assert os.waitpid(child, 0)[1] == 0
with multiprocessing.get_context("fork").Pool(1) as pool:
    assert pool.apply_async(answer, (0,)).get(60)
print("answered")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_answers_whatever_its_parent_did_before():
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "answered\n", done.stderr


def refitted(X, y, queries):
    return OneVsEachClassifier(log_scale=3.0).fit(X, y).predict_proba(queries)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_model_answers_in_other_processes(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier(log_scale=3.0).fit(X, y)
    with multiprocessing.get_context(method).Pool(1) as pool:
        answer = pool.apply(model.predict_proba, (queries,))
    np.testing.assert_allclose(answer, model.predict_proba(queries), rtol=1e-9)


@pytest.mark.parametrize("backend", ["loky", "multiprocessing", "threading"])
def test_joblib_fits_in_every_backend(backend):
    X, y, queries, _, _ = blobs()
    expected = refitted(X, y, queries)
    for p in Parallel(n_jobs=2, backend=backend)(delayed(refitted)(X, y, queries) for _ in range(2)):
        np.testing.assert_allclose(p, expected, rtol=1e-9)


def test_eight_threads_share_one_model_and_leave_the_number_of_threads_as_it_was():
    X, y, queries, _, unseen = blobs()
    reference = OneVsEachClassifier(log_scale=3.0).fit(X, y)
    expected = reference.predict_proba(queries), reference.outlier_score(unseen)
    model = OneVsEachClassifier(log_scale=3.0).fit(X, y)  # its outlier model is fitted by whoever comes first
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(lambda: (model.predict_proba(queries), model.outlier_score(unseen))) for _ in range(40)]
            for job in jobs:
                for got, right in zip(job.result(), expected, strict=True):
                    np.testing.assert_allclose(got, right, rtol=1e-9)
            assert set(pool.map(lambda _: torch.get_num_threads(), range(8))) == {2}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_reader_sees_a_whole_model_while_another_thread_adds():
    X, y, queries, _, _ = blobs(n_way=6)
    model = OneVsEachClassifier(log_scale=3.0).fit(X[y < 2], y[y < 2])
    failures, done = [], threading.Event()

    def read():
        while not done.is_set():
            try:
                p, labels = model.predict_proba(queries), model.predict(queries)
                assert p.shape[1] in range(2, 7)
                np.testing.assert_allclose(p.sum(1), 1)
                assert set(labels) <= set(range(6))
            except Exception as error:  # every failure is reported
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for c in range(2, 6):
        model.add(X[y == c], y[y == c])
    model.fit(X[:, :5], y)  # also another number of features: an error of ours at most
    done.set()
    for reader in readers:
        reader.join()
    assert all(isinstance(error, ValueError) and "features" in str(error) for error in failures)
