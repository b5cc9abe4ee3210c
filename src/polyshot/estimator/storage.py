"""A fitted classifier as one file: its arrays as tensors, the rest as JSON; nothing is ever unpickled."""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor

from polyshot.errors import DataError, InputError
from polyshot.estimator.covariance import Covariance
from polyshot.estimator.examples import Examples
from polyshot.estimator.fitted import FittedModel, kernel_matrix
from polyshot.estimator.pool import PooledCovariance
from polyshot.estimator.pool_models import Companion
from polyshot.estimator.projection import Projection, scaled
from polyshot.estimator.rows import Features
from polyshot.gp import KERNELS, Deformation, Kernel, SiteMixture, Sites, check_finite_tensor
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.system.threads import few_threads

if TYPE_CHECKING:
    from polyshot.estimator.classifier import OneVsEachClassifier

_FORMAT = "polyshot.OneVsEachClassifier 5"
_FIRST_FORMAT = "polyshot.OneVsEachClassifier 3"  # of polyshot 0.1
_COVARIANCE = ("roots", "size", "intercept")
_CLASS_KINDS = "biufUO"
_LATER = ("weights_with_none",)  # stored if it has been computed; a reader computes it again otherwise
_MOST_LOG_SCALE = 100.0  # learned ones stay far below, and exp of it is a number
_NUMBERS = ("n_chosen", "n_classes_chosen", "log_scale", "log_marginal_likelihood", "r_hat")


def save(classifier: "OneVsEachClassifier", path: Path, metadata: Any) -> None:
    """Write the whole file, or leave what was there; without `metadata`, what a loaded file had is written again."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(classifier)
    model: FittedModel = classifier.fitted_
    names = model.examples.classes
    if names.dtype.kind not in _CLASS_KINDS or not all(isinstance(x, str | int | float) for x in names.tolist()):
        raise InputError(f"only classes that are strings or numbers can be saved, not {names.dtype}")
    parameters = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in classifier.get_params(deep=False).items()
    }
    if parameters["random_state"] is not None and not isinstance(parameters["random_state"], int):
        raise InputError("only an integer random_state, or None, can be saved")
    metadata = getattr(classifier, "metadata_", {}) if metadata is None else metadata
    if not isinstance(metadata, dict) or not _is_json(metadata):
        raise InputError(f"metadata must be a dict of strings, numbers, lists and dicts, as JSON has, not {metadata!r}")
    # in a list, because JSON has no tuple
    parameters["unlabeled"] = [x for x in (parameters["unlabeled"],) if x != ()]
    covariance = model.covariance
    tensors = {
        **_feature_tensors(model.examples.X),
        "labels": torch.from_numpy(model.examples.labels),
        "rows": torch.from_numpy(model.examples.rows),
        "centre": covariance.centre,
        "unit": covariance.unit,
        "omega": model.posterior.sites.omega,
        "kappa": model.posterior.sites.kappa,
        "weights": model.weights,
        **model.later,
    }
    if model.examples.weights is not None:
        tensors["sample_weight"] = torch.from_numpy(model.examples.weights)
    header = {
        "parameters": parameters | {"kernel": _kernel_name(classifier.kernel)},
        "classes": names.tolist(),
        "class_type": names.dtype.str,
        "feature_names": getattr(classifier, "feature_names_in_", np.empty(0)).tolist(),
        "covariance": {name: getattr(covariance, name) for name in _COVARIANCE},
        "covariance_kernel": _kernel_name(covariance.kernel),
        "tied": model.posterior.tied,
        "metadata": metadata,
        **{name: getattr(model, name) for name in _NUMBERS},
    }
    if isinstance(covariance, PooledCovariance):
        tensors |= {"pool": covariance.pool, "landmarks": covariance.landmarks, **covariance.deformation._asdict()}
        for i, companion in enumerate(model.companions):
            tensors |= {f"companion.{i}.X": companion.X, f"companion.{i}.weights": companion.weights}
        header["pool"] = {
            "size_after": covariance.size_after,
            "log_scales": [companion.log_scale for companion in model.companions],
            "shares": [companion.share for companion in model.companions],
        }
    if model.projection is not None:
        tensors |= {"projection.landmarks": model.projection.landmarks, "projection.basis": model.projection.basis}
    if isinstance(covariance.kernel, Kernel):
        tensors |= {f"kernel.{k}": v for k, v in covariance.kernel.state_dict().items()}
    save_checkpoint(path, tensors, header, _FORMAT)


def load(kind: type["OneVsEachClassifier"], path: Path) -> "OneVsEachClassifier":
    """A classifier of that type, or a DataError that says what is wrong with the file."""
    tensors, header = load_checkpoint(path, _FORMAT, _FIRST_FORMAT)
    try:
        if "n_chosen_" in header:  # of polyshot 0.1
            header = {name.removesuffix("_"): value for name, value in header.items()} | {"metadata": {}}
            header["parameters"]["unlabeled"] = []
            tensors["rows"] = torch.arange(len(tensors["labels"]))
        if "unit" in header["covariance"]:  # written before features could have units of their own
            unit = header["covariance"].pop("unit")
            tensors["unit"] = torch.full_like(tensors["centre"], unit)
        with few_threads(tensors["centre"].numel() * len(tensors["labels"]) ** 2):
            for name, tensor in tensors.items():
                if tensor.is_complex():
                    raise ValueError(f"{name} is complex")
                check_finite_tensor(name, tensor.double())
            _check(header, tensors)
            return _rebuilt(kind, header, tensors)
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{path}: not a readable classifier ({error}); save it again") from error


def _is_json(metadata: Any) -> bool:
    """Whether JSON gives it back as it is; tuples, keys that are no strings, NaN and infinity do not survive."""
    try:
        return bool(json.loads(json.dumps(metadata, allow_nan=False)) == metadata)
    except (TypeError, ValueError, RecursionError):
        return False


def _kernel_name(kernel: Any) -> str:
    if isinstance(kernel, str):
        return kernel
    names = [name for name, kind in KERNELS.items() if type(kernel) is kind]
    if not names:
        raise InputError(
            "a kernel of your own cannot be saved, because only its code could restore it; use a polyshot kernel"
        )
    return names[0]


def _feature_tensors(X: Features) -> dict[str, Tensor]:
    if not issparse(X):
        return {"X": torch.from_numpy(X)}
    parts = {"data": X.data, "indices": X.indices.astype(np.int64), "indptr": X.indptr.astype(np.int64)}
    return {f"X.{name}": torch.from_numpy(part) for name, part in parts.items()}


def _features(tensors: dict[str, Tensor]) -> Features:
    if "X" in tensors:
        return tensors["X"].numpy()
    parts = tuple(tensors[f"X.{name}"].numpy() for name in ("data", "indices", "indptr"))
    X = csr_array(parts, shape=(len(tensors["labels"]), len(tensors["centre"])))
    X.check_format(full_check=True)
    return X


def _classes(header: dict[str, Any]) -> np.ndarray:
    if not re.fullmatch(rf"[<>|][{_CLASS_KINDS}]\d*", header["class_type"]):  # numpy takes much else
        raise ValueError("wrong class type")
    return np.array(header["classes"], dtype=np.dtype(header["class_type"]))


def _check(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse parts that do not belong together; the checksum has already shown that nothing changed by accident."""
    X, omega, labels = _features(tensors), tensors["omega"], tensors["labels"]
    n, n_way, n_chains = X.shape[0], len(header["classes"]), len(omega)
    shapes = {
        "centre": (X.shape[1],),
        "unit": (X.shape[1],),
        "omega": (n_chains, n, n_way),
        "kappa": (n_chains, n, n_way),
        "weights": (n, n_way),
    }
    by_features = "projection.basis" in tensors
    if by_features:
        (m, rank), constant = tensors["projection.basis"].shape, header["covariance"]["intercept"] > 0
        features = rank or X.shape[1]
        shapes |= {"projection.landmarks": (m, X.shape[1]), "weights": (features + constant, n_way)}
    shapes |= {name: (features if by_features else n, n_way + 1) for name in _LATER if name in tensors}
    shapes |= {name: (n,) for name in ("sample_weight",) if name in tensors}
    if "pool" in header:
        m, rank = tensors["basis"].shape
        shapes |= {
            "pool": (len(tensors["pool"]), X.shape[1]),
            "landmarks": (m, X.shape[1]),
            "basis": (m, rank),
            "energy": (rank,),
        }
        for i in range(len(header["pool"]["log_scales"])):
            shapes[f"companion.{i}.X"] = (len(tensors[f"companion.{i}.X"]), X.shape[1])
            shapes[f"companion.{i}.weights"] = (len(tensors[f"companion.{i}.X"]), n_way)
    arrays = {name: tensors[name] for name in shapes}
    classes, names, numbers = _classes(header), header["feature_names"], header["covariance"]
    log_scales = [header["log_scale"]]
    finite = [header["log_marginal_likelihood"], *(numbers[x] for x in _COVARIANCE[1:])]
    if "pool" in header:
        log_scales += header["pool"]["log_scales"]
        finite += [header["pool"]["size_after"], *header["pool"]["shares"]]
    counts = header["n_chosen"], header["n_classes_chosen"]
    checks = {
        "features": X.ndim == 2 and X.dtype == np.float64,
        "arrays": all(x.shape == torch.Size(s) for x, s in zip(arrays.values(), shapes.values(), strict=True)),
        "precision": all(x.dtype == torch.float64 for x in arrays.values()) and labels.dtype == torch.int64,
        "labels": labels.shape == (n,) and np.unique(labels).tolist() == list(range(n_way)),
        "weights": "sample_weight" not in tensors or bool((tensors["sample_weight"] > 0).all()),
        "rows": torch.equal(tensors["rows"].sort().values, torch.arange(n)),
        "metadata": isinstance(header["metadata"], dict),
        "classes": classes.dtype.kind in _CLASS_KINDS and np.unique(classes).tolist() == header["classes"],
        "feature names": names == [] or (len(names) == X.shape[1] and all(isinstance(x, str) for x in names)),
        "numbers": all(isinstance(x, float) and np.isfinite(x) for x in finite),
        "scales": all(isinstance(x, float) and abs(x) <= _MOST_LOG_SCALE for x in log_scales),
        "covariance": numbers["roots"] in (True, False) and numbers["size"] > 0 and bool((tensors["unit"] > 0).all()),
        "intercept": numbers["intercept"] >= 0,
        "R-hat": isinstance(header["r_hat"], float | None),
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
    labels, sites = tensors["labels"], Sites(tensors["omega"], tensors["kappa"])
    state = {k.removeprefix("kernel."): tensors[k] for k in tensors if k.startswith("kernel.")}
    kernel: str | Kernel = header["covariance_kernel"]
    unlabeled = next(iter(header["parameters"]["unlabeled"]), ())
    classifier = kind(**header["parameters"] | {"unlabeled": unlabeled})
    classifier.check_parameters()
    if state:
        kernel = KERNELS[str(kernel)]()
        kernel.to(next(iter(state.values())).dtype).load_state_dict(state)
        classifier.kernel = kernel
    weights = tensors["sample_weight"].numpy() if "sample_weight" in tensors else None
    examples = Examples(_features(tensors), labels.numpy(), _classes(header), tensors["rows"].numpy(), weights)
    classifier.n_features_in_ = examples.X.shape[1]
    classifier.metadata_ = header["metadata"]
    if header["feature_names"]:
        classifier.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    known: dict[str, Any] = {"kernel": deepcopy(kernel), "centre": tensors["centre"], "unit": tensors["unit"]}
    known |= header["covariance"]
    covariance = Covariance(**known)
    companions: tuple[Companion, ...] = ()
    if "pool" in header:
        companions = tuple(
            Companion(covariance, tensors[f"companion.{i}.X"], log_scale, tensors[f"companion.{i}.weights"], share)
            for i, (log_scale, share) in enumerate(
                zip(header["pool"]["log_scales"], header["pool"]["shares"], strict=True)
            )
        )
        bent = Deformation(tensors["basis"], tensors["energy"])
        known |= {"pool": tensors["pool"], "landmarks": tensors["landmarks"], "deformation": bent}
        covariance = PooledCovariance(**known, size_after=header["pool"]["size_after"])
    projection = None
    if "projection.basis" in tensors:
        projection = Projection(covariance, tensors["projection.landmarks"], tensors["projection.basis"])
    K = scaled(kernel_matrix(covariance, projection, examples.X), header["log_scale"], covariance.intercept)
    classifier.fitted_ = FittedModel(
        examples,
        covariance,
        posterior=SiteMixture(K, labels, sites, header["tied"]),
        weights=tensors["weights"],
        projection=projection,
        companions=companions,
        later={name: tensors[name] for name in _LATER if name in tensors},
        **{name: header[name] for name in _NUMBERS},
    )
    return classifier
