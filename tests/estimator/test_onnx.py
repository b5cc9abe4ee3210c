"""The ONNX graph answers as Python does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyshot import OneVsEachClassifier
from polyshot.errors import InputError
from polyshot.gp import RBF, Cosine, Linear
from polyshot.system.extras import missing_extra

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

KERNELS = ["cosine", "linear", "rbf", "normalized-rbf", "dkt-cosine", Cosine(0.3), Linear(-0.2), RBF(0.4, 0.7)]


def task(kernel: Any, n_classes: int, negative: bool = True) -> tuple[OneVsEachClassifier, np.ndarray]:
    """A fitted classifier, and queries: near, far, an example, and zeros."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8 * n_classes, 6)) + 3 * np.eye(8)[np.arange(8 * n_classes) % n_classes, :6]
    X, y = (X if negative else abs(X)).astype(np.float32), np.array([f"c{k % n_classes}" for k in range(len(X))])
    queries = np.concatenate([rng.normal(scale=2, size=(20, 6)), rng.normal(scale=50, size=(5, 6)), X[:1]])
    queries = np.concatenate([queries if negative else abs(queries), np.zeros((1, 6))])
    return OneVsEachClassifier(kernel).fit(X, y), queries.astype(np.float32)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(("n_classes", "negative"), [(2, True), (5, True), (5, False)])
def test_the_graph_answers_as_python_does(kernel: Any, n_classes: int, negative: bool, tmp_path: Path) -> None:
    model, queries = task(kernel, n_classes, negative)
    path = tmp_path / "model.onnx"
    model.export_onnx(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    logits, probabilities, score = session.run(["logits", "probabilities", "outlier_score"], {"X": queries})
    expected = model.decision_function(queries)
    np.testing.assert_allclose(
        logits[:, 1] - logits[:, 0] if n_classes == 2 else logits, expected, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(probabilities, model.predict_proba(queries), atol=1e-5)
    np.testing.assert_allclose(score, model.outlier_score(queries), rtol=1e-5, atol=1e-5)
    assert json.loads({entry.key: entry.value for entry in onnx.load(path).metadata_props}["classes"]) == (
        model.classes_.tolist()
    )


def test_the_file_of_a_cosine_holds_no_examples(tmp_path: Path) -> None:
    model, _ = task("cosine", 5)
    model.export_onnx(tmp_path / "model.onnx")
    arrays = [onnx.numpy_helper.to_array(x) for x in onnx.load(tmp_path / "model.onnx").graph.initializer]
    assert max(array.size for array in arrays) == 6 * 6  # features by classes and the one without examples


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    X, y = np.arange(12.0).reshape(6, 2), ["a", "b", "a", "b", "", ""]
    path = tmp_path / "model.onnx"
    with pytest.raises(InputError, match="fit one on the labelled rows alone"):
        OneVsEachClassifier(unlabeled="").fit(X, y).export_onnx(path)
    with pytest.raises(InputError, match="a kernel of your own cannot be exported"):
        OneVsEachClassifier(lambda a, b: a @ b.T).fit(X[:4], y[:4]).export_onnx(path)
    assert not path.exists()


def test_a_missing_package_is_named_with_its_extra() -> None:
    message = missing_extra(ModuleNotFoundError("No module named 'onnx'", name="onnx"))
    assert message == "onnx is not installed; install it with: pip install 'polyshot[onnx]'"
