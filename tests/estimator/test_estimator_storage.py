import json
import pickle

import numpy as np
import pytest
import torch
from blobs import blobs
from safetensors.torch import save_file

from polyshot.errors import DataError, InputError
from polyshot.estimator import OneVsEachClassifier
from polyshot.gp import Cosine


def test_a_user_may_pickle_it(fitted):
    queries = blobs()[2]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(queries), fitted.predict(queries))


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
    metadata = {"format": "polyshot.OneVsEachClassifier 3", "json": json.dumps({"classes": [1, 2]})}
    save_file({"X": torch.zeros(3, 2)}, tmp_path / "part", metadata)
    with pytest.raises(DataError, match="not a readable"):
        OneVsEachClassifier.load(tmp_path / "part")


def test_your_own_function_cannot_be_saved(tmp_path):
    X, y, *_ = blobs()
    with pytest.raises(InputError, match="kernel of your own"):
        OneVsEachClassifier(kernel=lambda x, z: x @ z.T).fit(X, y).save(tmp_path / "model")
