"""A fitted classifier as an ONNX graph, to answer where there is no Python.

The graph takes float32 rows X [n, d] and computes in double precision. For kernels that are inner products of features
(cosine, linear) the examples and their weights are multiplied once, here, so that the file holds one vector per class
and no example. For the RBF it holds the examples.
"""

import json
import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyshot.errors import InputError
from polyshot.estimator.covariance import DIRECTIONAL, Covariance
from polyshot.estimator.fitted import NEAREST, FittedModel
from polyshot.estimator.pool import PooledCovariance
from polyshot.gp import RBF, Cosine, DKTCosine, Kernel, Linear, NormalizedRBF, as_tensor, make_kernel
from polyshot.system.extras import missing_extra
from polyshot.system.files import write_atomically

_OPSET, _IR = 18, 8  # of the same year, so that old runtimes read the file
_LENGTH_ONE = (Cosine, DKTCosine, NormalizedRBF)
_INNER_PRODUCTS = (Cosine, DKTCosine, Linear)
_EXPORTED = (*_INNER_PRODUCTS, RBF, NormalizedRBF)


def export(model: FittedModel, path: Path) -> None:
    """Write the graph: X to logits, probabilities and outlier_score."""
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise (ImportError(how) if (how := missing_extra(error)) else error) from error
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = _Graph()
    _answer(graph, model, _checked_kernel(model))
    n_features, n_classes = model.examples.X.shape[1], len(model.examples.classes)
    content = helper.make_graph(
        [helper.make_node(kind, inputs, [output], **attributes) for kind, inputs, output, attributes in graph.nodes],
        "OneVsEachClassifier",
        [helper.make_tensor_value_info("X", kinds.FLOAT, ["n", n_features])],
        [
            helper.make_tensor_value_info("logits", kinds.DOUBLE, ["n", n_classes]),
            helper.make_tensor_value_info("probabilities", kinds.DOUBLE, ["n", n_classes]),
            helper.make_tensor_value_info("outlier_score", kinds.DOUBLE, ["n"]),
        ],
        [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    file = helper.make_model(
        content, producer_name="polyshot", opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )
    helper.set_model_props(file, {"classes": json.dumps(model.examples.classes.tolist())})
    onnx.checker.check_model(file)
    write_atomically(path, file.SerializeToString())


class _Graph:
    """Nodes and constants; every node's output has a name."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """Name of an array."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.array(value, dtype)
        return name

    def node(self, kind: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """Name of what a node computes; inputs are names, or numbers and arrays."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append((kind, names, output, attributes))
        return output

    def over_columns(self, kind: str, x: str, **attributes: Any) -> str:
        """A reduction over the last axis."""
        return self.node(kind, x, self.constant([1], np.int64), **attributes)

    def unit_rows(self, x: str) -> str:
        """Rows of length one; zero rows stay zero."""
        length = self.over_columns("ReduceL2", x)
        there = self.node("Greater", length, 0.0)
        return self.node("Div", x, self.node("Where", there, length, 1.0))


def _checked_kernel(model: FittedModel) -> Kernel:
    covariance = model.covariance
    if isinstance(covariance, PooledCovariance):
        raise InputError(
            "a model that was fitted with unlabelled rows cannot be exported; fit one on the labelled rows alone"
        )
    if model.projection is not None and len(model.projection.landmarks):
        raise InputError(
            f"a model of {len(model.examples.X):,} examples under an RBF cannot be exported, because it works with "
            "landmarks; use kernel='cosine' or 'linear', or fit fewer examples"
        )
    kernel = make_kernel(covariance.kernel) if isinstance(covariance.kernel, str) else covariance.kernel
    if type(kernel) not in _EXPORTED:
        raise InputError(
            "a kernel of your own cannot be exported, because ONNX has no code of yours; use kernel='cosine', 'linear' "
            "or 'rbf'"
        )
    exported: Kernel = deepcopy(kernel).double()
    return exported


def _answer(graph: _Graph, model: FittedModel, kernel: Kernel) -> None:
    """From X to the outputs; the steps are those of Covariance and FittedModel."""
    covariance, scale = model.covariance, np.exp(model.log_scale)
    weights, with_none = model.weights.numpy(), model.weights_with_none().numpy()
    x = _inputs(graph, covariance)
    if isinstance(kernel, _LENGTH_ONE):
        x = graph.unit_rows(x)
    nearest = None
    if isinstance(kernel, _INNER_PRODUCTS):
        to_inputs = _to_inputs(kernel, model)
        centred = graph.node("MatMul", x, to_inputs @ weights[: to_inputs.shape[1]])
        none = graph.node("MatMul", x, to_inputs @ with_none)
    else:
        assert isinstance(kernel, RBF)
        K = graph.node("Mul", _distances(graph, x, kernel, covariance, model.examples.X), scale / covariance.size)
        centred, none = graph.node("MatMul", K, weights), graph.node("MatMul", K, with_none)
        nearest = graph.over_columns("ReduceMax", K, keepdims=0) if covariance.fades else None
    by_intercept = covariance.intercept * weights.sum(0)
    if model.projection is not None:
        by_intercept = np.sqrt(covariance.intercept) * weights[-1]
    graph.node("Add", centred, by_intercept, output="logits")
    graph.node("Softmax", "logits", output="probabilities", axis=-1)
    n_classes = weights.shape[1]
    known = graph.node("Gather", none, graph.constant(range(n_classes), np.int64), axis=1)
    extra = graph.node("Gather", none, graph.constant(n_classes, np.int64), axis=1)
    score = graph.node("Sub", extra, graph.over_columns("ReduceMax", known, keepdims=0))
    if nearest:
        deviation = np.exp(model.log_scale / 2)
        distance = graph.node("Sub", deviation, graph.node("Div", nearest, deviation))
        score = graph.node("Add", score, graph.node("Mul", distance, NEAREST))
    graph.node("Identity", score, output="outlier_score")


def _inputs(graph: _Graph, covariance: Covariance) -> str:
    """What the kernel is given: rows that are centred, and for directions of length one before that."""
    x = graph.node("Cast", "X", to=11)  # DOUBLE
    if not isinstance(covariance.kernel, str):
        return x
    centre = covariance.centre.numpy()
    if covariance.kernel not in DIRECTIONAL:
        return graph.node("Div", graph.node("Sub", x, centre), covariance.unit.numpy())
    if covariance.roots:
        x = graph.node("Mul", graph.node("Sign", x), graph.node("Sqrt", graph.node("Abs", x)))
    x = graph.unit_rows(x)
    there = graph.node("Greater", graph.over_columns("ReduceL2", x), 0.0)
    return graph.node("Sub", x, graph.node("Where", there, centre, np.zeros_like(centre)))


def _to_inputs(kernel: Kernel, model: FittedModel) -> NDArray[np.float64]:
    """The matrix that turns x, as prepared above, into what the weights multiply: covariances or features."""
    covariance, scale, d = model.covariance, np.exp(model.log_scale), model.examples.X.shape[1]
    factor = float(kernel.features(as_tensor(np.eye(1, d))).detach().norm())  # features are x times this
    if model.projection is not None:
        by_feature: NDArray[np.float64] = np.sqrt(scale / covariance.size) * factor * np.eye(d)
        return by_feature
    features = kernel.features(covariance.inputs(as_tensor(model.examples.X))).detach().numpy()
    inner: NDArray[np.float64] = scale * factor * features.T / covariance.size
    return inner


def _distances(graph: _Graph, x: str, kernel: RBF, covariance: Covariance, X: NDArray[np.float64]) -> str:
    """The kernel's value of each row and example, before division by the size."""
    lengthscale = math.exp(kernel.log_lengthscale.item())
    z = kernel.inputs(covariance.inputs(as_tensor(X))).numpy()
    origin = z.mean(0)
    factor = float(kernel.inputs(as_tensor(np.eye(1, X.shape[1]))).norm())
    x, z = graph.node("Sub", graph.node("Mul", x, factor), origin), z - origin
    products = graph.node("MatMul", x, -2 * z.T)
    squared = graph.node("Add", graph.node("Add", graph.over_columns("ReduceSumSquare", x), (z**2).sum(1)), products)
    exponent = graph.node("Mul", graph.node("Max", squared, 0.0), -0.5 / lengthscale**2)
    return graph.node("Mul", graph.node("Exp", exponent), math.exp(kernel.log_scale.item()))
