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
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint


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


def test_the_outlier_model_is_stored_if_it_is_there_and_rebuilt_otherwise(tmp_path):
    X, y, _, _, unseen = blobs()
    model = OneVsEachClassifier().fit(X, y)
    model.save(tmp_path / "without")
    scores = model.outlier_score(unseen)
    model.save(tmp_path / "with")
    kind = "polyshot.OneVsEachClassifier 5"
    assert "weights_with_none" not in load_checkpoint(tmp_path / "without", kind)[0]
    assert "weights_with_none" in load_checkpoint(tmp_path / "with", kind)[0]
    for name in ("with", "without"):
        np.testing.assert_allclose(OneVsEachClassifier.load(tmp_path / name).outlier_score(unseen), scores, rtol=1e-12)


def test_files_that_are_not_a_classifier_are_refused(tmp_path, fitted):
    with pytest.raises(DataError, match="no such file"):
        OneVsEachClassifier.load(tmp_path / "none")
    (tmp_path / "text").write_text("not tensors")
    with pytest.raises(DataError, match="not a readable"):
        OneVsEachClassifier.load(tmp_path / "text")
    save_file({"x": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(DataError, match="not one that polyshot wrote"):
        OneVsEachClassifier.load(tmp_path / "foreign")
    fitted.save(tmp_path / "good")
    whole = (tmp_path / "good").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a readable"):
        OneVsEachClassifier.load(tmp_path / "cut")
    metadata = {"format": "polyshot.OneVsEachClassifier 5", "json": json.dumps({"classes": [1, 2]})}
    save_file({"X": torch.zeros(3, 2)}, tmp_path / "part", metadata)
    with pytest.raises(DataError, match="damaged, its content does not match its checksum"):
        OneVsEachClassifier.load(tmp_path / "part")


def test_your_own_function_cannot_be_saved(tmp_path):
    X, y, *_ = blobs()
    with pytest.raises(InputError, match="kernel of your own"):
        OneVsEachClassifier(kernel=lambda x, z: x @ z.T).fit(X, y).save(tmp_path / "model")


def test_numbers_of_numpy_are_parameters_like_any_other(tmp_path):
    X, y, queries, _, _ = blobs()
    options = {"random_state": np.int64(3), "log_scale": np.float32(3), "n_chains": np.int32(5), "n_steps": np.uint8(9)}
    model = OneVsEachClassifier(**options).fit(X, y)
    model.save(tmp_path / "model")
    again = OneVsEachClassifier.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    np.testing.assert_allclose(again.predict_proba(queries), model.predict_proba(queries), rtol=1e-12)
    model.random_state = np.random.default_rng(0)
    with pytest.raises(InputError, match="integer random_state"):
        model.save(tmp_path / "other")


class Mine(OneVsEachClassifier):
    pass


def test_a_class_of_your_own_loads_as_itself(tmp_path):
    X, y, *_ = blobs()
    Mine(log_scale=3.0).fit(X, y).save(tmp_path / "model")
    assert type(Mine.load(tmp_path / "model")) is Mine


def _changed(name, value):
    def change(tensors, record):
        (tensors if name in tensors else record)[name] = value

    return change


def _within(group, name, value):
    return lambda _, record: record[group].update({name: value})


@pytest.mark.parametrize(
    "change",
    [
        _changed("labels", torch.arange(20) % 5),
        _changed("labels", torch.arange(20) % 3),
        _changed("labels", torch.arange(20) % 4 - 1),
        _changed("labels", torch.arange(20) % 4 + 0.5),
        _changed("X", torch.zeros(20, 32)),
        _changed("X", torch.full((20, 32), torch.nan, dtype=torch.float64)),
        _changed("weights", torch.zeros(20, 5, dtype=torch.float64)),
        _changed("omega", -torch.ones(1, 20, 4, dtype=torch.float64)),
        _changed("omega", torch.ones(2, 20, 4, dtype=torch.float64)),
        _changed("classes", ["a", "b", "b", "c"]),
        _changed("classes", ["b", "a", "c", "d"]),
        _changed("classes", ["a"]),
        _changed("classes", "abcd"),
        _changed("classes", None),
        _changed("class_type", "V4"),
        _changed("class_type", "magic"),
        _changed("feature_names", ["x"] * 5),
        _changed("feature_names", list(range(32))),
        _changed("feature_names", 7),
        _changed("covariance_kernel", "magic"),
        _changed("covariance_kernel", "auto"),
        _changed("log_scale", float("nan")),
        _changed("log_scale", "3"),
        _changed("log_marginal_likelihood", None),
        _changed("r_hat", "small"),
        _changed("n_chosen", 0),
        _changed("n_classes_chosen", 2.5),
        _changed("tied", "yes"),
        _within("covariance", "unit", float("nan")),
        _within("covariance", "unit", 0.0),
        _within("covariance", "size", -1.0),
        _within("covariance", "intercept", float("inf")),
        _within("covariance", "roots", 2),
        _within("parameters", "inference", "magic"),
        _within("parameters", "kernel", "magic"),
        _within("parameters", "random_state", "magic"),
        _within("parameters", "n_chains", 0),
        _within("parameters", "other", 0),
        lambda _, record: record.pop("classes"),
        lambda tensors, _: tensors.pop("kappa"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused(tmp_path, change):
    X, y, queries, _, _ = blobs()
    model = OneVsEachClassifier("rbf", log_scale=3.0).fit(X, np.array(["a", "b", "c", "d"])[y])
    model.save(tmp_path / "model")
    kind = "polyshot.OneVsEachClassifier 5"
    tensors, record = load_checkpoint(tmp_path / "model", kind)
    save_checkpoint(tmp_path / "same", tensors, record, kind)
    np.testing.assert_array_equal(OneVsEachClassifier.load(tmp_path / "same").predict(queries), model.predict(queries))
    change(tensors, record)
    save_checkpoint(tmp_path / "model", tensors, record, kind)
    with pytest.raises(DataError, match="not a readable classifier"):
        OneVsEachClassifier.load(tmp_path / "model")
