"""A fitted classifier as a checkpoint: its arrays as tensors, all the rest in the record; nothing is ever unpickled."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from polyshot.checkpoint import load_checkpoint, save_checkpoint
from polyshot.errors import DataError, InputError
from polyshot.estimator.covariance import Covariance
from polyshot.estimator.inference import Posterior
from polyshot.gp import KERNELS, Kernel, Sites
from polyshot.gp.checks import check_finite

if TYPE_CHECKING:
    from polyshot.estimator.classifier import OneVsEachClassifier

_FORMAT = "polyshot.OneVsEachClassifier 3"
_NUMBERS = ("n_chosen_", "n_classes_chosen_", "log_scale_", "log_marginal_likelihood_", "r_hat_")


def save(classifier: "OneVsEachClassifier", path: Path) -> None:
    """Write the whole file, or leave what was there."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(classifier)
    names = classifier.classes_
    if names.dtype.kind not in "biufUO" or not all(isinstance(x, str | int | float) for x in names.tolist()):
        raise InputError(f"only classes that are strings or numbers can be saved, not {names.dtype}")
    parameters = classifier.get_params(deep=False)
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
        "covariance": {name: getattr(covariance, name) for name in ("roots", "unit", "size", "intercept")},
        "covariance_kernel": _kernel_name(covariance.kernel),
        "tied": classifier.posterior_.tied,
        **{name: getattr(classifier, name) for name in _NUMBERS},
    }
    if isinstance(classifier.kernel, Kernel):
        tensors |= {f"kernel.{k}": v for k, v in classifier.kernel.state_dict().items()}
    save_checkpoint(path, tensors, header, _FORMAT)


def load(path: Path) -> "OneVsEachClassifier":
    """The classifier, or a DataError that says what is wrong with the file."""
    tensors, header = load_checkpoint(path, _FORMAT)
    try:
        return _rebuilt(header, tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
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


def _rebuilt(header: dict[str, Any], tensors: dict[str, Tensor]) -> "OneVsEachClassifier":
    from polyshot.estimator.classifier import OneVsEachClassifier

    state = {k.removeprefix("kernel."): tensors.pop(k) for k in list(tensors) if k.startswith("kernel.")}
    for name, tensor in tensors.items():
        check_finite(name, tensor.double())
    X, labels, sites = tensors["X"], tensors["labels"], Sites(tensors["omega"], tensors["kappa"])
    n, n_way = len(X), len(header["classes"])
    shapes = {"labels": (n,), "centre": X.shape[1:], "weights": (n, n_way), "weights_with_none": (n, n_way + 1)}
    fit = all(tensors[name].shape == torch.Size(shape) for name, shape in shapes.items())
    if not fit or sites.omega.shape != sites.kappa.shape or sites.omega.shape[1:] != (n, n_way):
        raise ValueError("its arrays do not belong together")
    kernel: str | Kernel = header["covariance_kernel"]
    classifier = OneVsEachClassifier(**header["parameters"])
    if state:
        kernel = KERNELS[str(kernel)]()
        kernel.to(next(iter(state.values())).dtype).load_state_dict(state)
        classifier.kernel = kernel
    classifier.n_features_in_ = X.shape[1]
    if header["feature_names"]:
        classifier.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    classifier.classes_ = np.array(header["classes"], dtype=np.dtype(header["class_type"]))
    classifier.X_fit_, classifier.labels_ = X.numpy(), labels.numpy()
    classifier.covariance_ = Covariance(kernel, centre=tensors["centre"], **header["covariance"])
    for name in _NUMBERS:
        setattr(classifier, name, header[name])
    K = np.exp(classifier.log_scale_) * classifier._support_covariance() + classifier.covariance_.intercept
    classifier.posterior_ = Posterior(K, labels, sites, header["tied"])
    classifier.weights_, classifier.weights_with_none_ = tensors["weights"], tensors["weights_with_none"]
    return classifier
