import os
import warnings

import numpy as np
import pytest
from blobs import blobs

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier, fitted, memory
from polyshot.estimator.inference import ChainOptions
from polyshot.gp.inference.tied_conditional import TiedConditional
from polyshot.gp.models.one_vs_each import OneVsEachConditional


def test_a_container_may_have_less_than_the_machine(monkeypatch, tmp_path):
    X, y, *_ = blobs()
    monkeypatch.setattr(memory, "_CONTAINER_LIMIT", tmp_path / "memory.max")
    for text in (None, "max\n", f"{2**40}\n"):
        if text:
            (tmp_path / "memory.max").write_text(text)
        OneVsEachClassifier().fit(X, y)
    (tmp_path / "memory.max").write_text(f"{2**16}\n")
    with pytest.raises(InputError, match=r"20 examples of 4 classes need about .* GB"):
        OneVsEachClassifier().fit(X, y)


def test_a_system_that_does_not_tell_its_memory_is_trusted(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_CONTAINER_LIMIT", tmp_path / "none")
    monkeypatch.delattr(os, "sysconf")
    X, y, *_ = blobs()
    OneVsEachClassifier().fit(X, y)


def test_an_addition_is_refused_for_the_classes_that_there_would_be(monkeypatch):
    X, y, *_ = blobs(n_way=2)
    model = OneVsEachClassifier(inference="variational", log_scale=3.0).fit(X, y)
    enough = memory.needed_bytes("variational", 100, 3, 32, ChainOptions(4, 5000, None))
    monkeypatch.setattr(memory, "memory_bytes", lambda: enough / 0.8)
    with pytest.raises(InputError, match="102 examples of 94 classes"):
        model.add(np.ones((92, 32)), np.arange(2, 94))
    assert list(model.classes_) == [0, 1]


@pytest.mark.parametrize("inference", ["propagation", "variational", "gibbs"])
def test_covariances_of_many_queries_come_in_chunks_from_one_factorisation(monkeypatch, inference):
    X, y, queries, _, _ = blobs(n_query=50)
    model = OneVsEachClassifier(inference=inference, n_steps=60, n_chains=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    mean, covariance = model.latent_mean_and_covariance(queries)
    limit = 40_000
    monkeypatch.setattr(fitted, "CHUNK_NUMBERS", limit)
    sizes, conditions = [], []
    for kind in (TiedConditional, OneVsEachConditional):
        query = kind.query

        def watched(self, K_star, k_star_star, query=query):
            logits = query(self, K_star, k_star_star)
            sizes.append(len(logits.mean) * len(K_star) * 4 * len(X))
            conditions.append(id(self))
            return logits

        monkeypatch.setattr(kind, "query", watched)
    again = model.latent_mean_and_covariance(queries)
    assert len(sizes) > len(set(conditions)) == 1
    assert max(sizes) <= limit
    np.testing.assert_allclose(again[0], mean, rtol=1e-12)
    np.testing.assert_allclose(again[1], covariance, rtol=1e-9, atol=1e-12)
