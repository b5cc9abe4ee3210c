"""A fitted classifier as a checkpoint: its arrays as tensors, all the rest in the record; nothing is ever unpickled."""

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from polyshot.errors import DataError, InputError
from polyshot.estimator.covariance import Covariance
from polyshot.estimator.inference import Posterior
from polyshot.gp import KERNELS, Kernel, Sites, check_finite_tensor
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint

if TYPE_CHECKING:
    from polyshot.estimator.classifier import OneVsEachClassifier

_FORMAT = "polyshot.OneVsEachClassifier 3"
_COVARIANCE = ("roots", "unit", "size", "intercept")
_CLASS_KINDS = "biufUO"
_NUMBERS = ("n_chosen_", "n_classes_chosen_", "log_scale_", "log_marginal_likelihood_", "r_hat_")


def save(classifier: "OneVsEachClassifier", path: Path) -> None:
    """Write the whole file, or leave what was there."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(classifier)
    names = classifier.classes_
    if names.dtype.kind not in _CLASS_KINDS or not all(isinstance(x, str | int | float) for x in names.tolist()):
        raise InputError(f"only classes that are strings or numbers can be saved, not {names.dtype}")
    parameters = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in classifier.get_params(deep=False).items()
    }
    if parameters["random_state"] is not None and not isinstance(parameters["random_state"], int):
        raise InputError("only an integer random_state, or None, can be saved")
    covariance, sites = classifier.covariance_, classifier.posterior_.sites
    tensors = {
        "X": torch.from_numpy(classifier.X_fit_),
        "labels": torch.from_numpy(classifier.labels_),
        "centre": covariance.centre,
        "omega": sites.omega,
        "kappa": sites.kappa,
        "weights": classifier.weights_,
        "weights_with_none": classifier.weights_with_none_,
    }
    header = {
        "parameters": parameters | {"kernel": _kernel_name(classifier.kernel)},
        "classes": names.tolist(),
        "class_type": names.dtype.str,
        "feature_names": getattr(classifier, "feature_names_in_", np.empty(0)).tolist(),
        "covariance": {name: getattr(covariance, name) for name in _COVARIANCE},
        "covariance_kernel": _kernel_name(covariance.kernel),
        "tied": classifier.posterior_.tied,
        **{name: getattr(classifier, name) for name in _NUMBERS},
    }
    if isinstance(covariance.kernel, Kernel):
        tensors |= {f"kernel.{k}": v for k, v in covariance.kernel.state_dict().items()}
    save_checkpoint(path, tensors, header, _FORMAT)


def load(kind: type["OneVsEachClassifier"], path: Path) -> "OneVsEachClassifier":
    """A classifier of that type, or a DataError that says what is wrong with the file."""
    tensors, header = load_checkpoint(path, _FORMAT)
    try:
        for name, tensor in tensors.items():
            check_finite_tensor(name, tensor.double())
        _check(header, tensors)
        return _rebuilt(kind, header, tensors)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{path}: not a readable classifier ({error}); save it again") from error


def _kernel_name(kernel: Any) -> str:
    if isinstance(kernel, str):
        return kernel
    names = [name for name, kind in KERNELS.items() if type(kernel) is kind]
    if not names:
        raise InputError(
            "a kernel of your own cannot be saved, because only code could restore it; use a polyshot kernel"
        )
    return names[0]


def _classes(header: dict[str, Any]) -> np.ndarray:
    return np.array(header["classes"], dtype=np.dtype(header["class_type"]))


def _check(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """A checksum says that nobody changed the file by accident; this, that its parts belong together."""
    arrays = {name: tensors[name] for name in ("X", "centre", "omega", "kappa", "weights", "weights_with_none")}
    X, omega, labels = arrays["X"], arrays["omega"], tensors["labels"]
    n, n_way, n_chains = len(X), len(header["classes"]), len(omega)
    shapes = [(n, X.shape[1]), X.shape[1:], *[(n_chains, n, n_way)] * 2, (n, n_way), (n, n_way + 1)]
    classes, names, numbers = _classes(header), header["feature_names"], header["covariance"]
    finite = [header["log_scale_"], header["log_marginal_likelihood_"], *(numbers[x] for x in _COVARIANCE[1:])]
    counts = header["n_chosen_"], header["n_classes_chosen_"]
    checks = {
        "arrays": all(x.shape == torch.Size(s) for x, s in zip(arrays.values(), shapes, strict=True)),
        "precision": all(x.dtype == torch.float64 for x in arrays.values()) and labels.dtype == torch.int64,
        "labels": labels.shape == (n,) and np.unique(labels).tolist() == list(range(n_way)),
        "classes": classes.dtype.kind in _CLASS_KINDS and np.unique(classes).tolist() == header["classes"],
        "feature names": names == [] or (len(names) == X.shape[1] and all(isinstance(x, str) for x in names)),
        "numbers": all(isinstance(x, float) and np.isfinite(x) for x in finite),
        "covariance": numbers["roots"] in (True, False) and numbers["unit"] > 0 < numbers["size"],
        "intercept": numbers["intercept"] >= 0,
        "R-hat": isinstance(header["r_hat_"], float | None),
        "counts": all(isinstance(x, int) and 2 <= x <= most for x, most in zip(counts, (n, n_way), strict=True)),
        "sites": header["tied"] in (True, False) and bool((omega >= 0).all()) and (n_chains == 1 or not header["tied"]),
        "kernel": header["covariance_kernel"] in KERNELS and header["parameters"]["kernel"] in ("auto", *KERNELS),
    }
    wrong = [name for name, right in checks.items() if not right]
    if wrong:
        raise ValueError(f"wrong {', '.join(wrong)}")


def _rebuilt(
    kind: type["OneVsEachClassifier"], header: dict[str, Any], tensors: dict[str, Tensor]
) -> "OneVsEachClassifier":
    X, labels, sites = tensors["X"], tensors["labels"], Sites(tensors["omega"], tensors["kappa"])
    state = {k.removeprefix("kernel."): tensors[k] for k in tensors if k.startswith("kernel.")}
    kernel: str | Kernel = header["covariance_kernel"]
    classifier = kind(**header["parameters"])
    classifier._check_parameters()
    if state:
        kernel = KERNELS[str(kernel)]()
        kernel.to(next(iter(state.values())).dtype).load_state_dict(state)
        classifier.kernel = kernel
    classifier.n_features_in_ = X.shape[1]
    if header["feature_names"]:
        classifier.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    classifier.classes_ = _classes(header)
    classifier.X_fit_, classifier.labels_ = X.numpy(), labels.numpy()
    classifier.covariance_ = Covariance(deepcopy(kernel), centre=tensors["centre"], **header["covariance"])
    for name in _NUMBERS:
        setattr(classifier, name, header[name])
    K = np.exp(classifier.log_scale_) * classifier._support_covariance() + classifier.covariance_.intercept
    classifier.posterior_ = Posterior(K, labels, sites, header["tied"])
    classifier.weights_, classifier.weights_with_none_ = tensors["weights"], tensors["weights_with_none"]
    return classifier
