"""What users pass as X and y, checked and turned into arrays; each problem ends in an error that names it."""

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from polyshot.errors import InputError, InputTypeError
from polyshot.estimator.rows import Features

_DATES = "labels must be strings or numbers, not dates; convert them first, for example with y.astype(str)"


def checked_features(estimator: Any, X: Any) -> Features:
    """The features of queries as float64, if they match what the estimator was fitted to."""
    return _canonical(_validated(estimator, X, reset=False))


def checked_examples(estimator: Any, X: Any, y: Any, *, reset: bool) -> tuple[Features, NDArray[Any]]:
    """Features as float64 and labels as a one-dimensional array; `reset` forgets the features of an earlier fit."""
    X, y = _validated(estimator, X, _labels(y), reset=reset, ensure_min_samples=2 if reset else 1)
    with warnings.catch_warnings():  # that many classes have one example is normal here
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        try:
            check_classification_targets(y)
        except (TypeError, ValueError) as error:
            raise InputError(str(error)) from error
    return _canonical(X), y


def joined_labels(before: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Old and new labels in one array of one type, which keeps every label as it is."""
    if _kind(y) != _kind(before):
        raise InputError(f"the labels are {_kind(before)} so far, not {_kind(y)}, as {y[0]!r} is")
    if before.dtype.kind in "iu" and np.result_type(before, y).kind == "f":  # int64 with uint64
        smallest, largest = (f(int(f(before)), int(f(y))) for f in (min, max))
        if smallest < 0 and largest >= 2**63:
            raise InputError(
                f"no integer type holds labels from {smallest} to {largest}; use strings for labels beyond 2^63"
            )
        dtype = np.uint64 if largest >= 2**63 else np.int64
        before, y = before.astype(dtype), y.astype(dtype)
    return np.concatenate([before, y])


def checked_sample_weight(sample_weight: Any, n: int) -> NDArray[np.float64] | None:
    """One number of at least 0 per example; None if all are one."""
    if sample_weight is None:
        return None
    weights = as_array("sample_weight", sample_weight, np.float64)
    if weights.shape != (n,):
        raise InputError(f"sample_weight must have one number per row of X, {n:,}; its shape is {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError(
            f"sample_weight must be finite and at least 0; it ranges from {weights.min()} to {weights.max()}"
        )
    return None if (weights == 1).all() else weights


def weighted_rows(
    X: Features, y: NDArray[Any], sample_weight: Any, unknown: NDArray[np.bool_]
) -> tuple[Features, NDArray[Any], NDArray[np.float64] | None]:
    """The labelled rows, their labels and weights, without rows of weight 0; `unknown` are the user's other rows."""
    weights = checked_sample_weight(sample_weight, len(unknown))
    if weights is None:
        return X, y, None
    weights = weights[~unknown]
    kept = weights > 0
    return X[kept], y[kept], weights[kept]


def checked_rows(rows: Any, n: int) -> NDArray[np.int64]:
    """Numbers of some of n examples, from 0 to n - 1; negative ones count from the end."""
    numbers = np.atleast_1d(as_array("rows", rows))
    if numbers.size == 0:
        return np.empty(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError(f"rows must be whole numbers of examples, not {rows!r}; from a mask, use numpy.flatnonzero")
    if numbers.min() < -n or numbers.max() >= n:
        raise InputError(f"rows must be from {-n} to {n - 1}, because there are {n:,} examples; got {rows!r}")
    return numbers.astype(np.int64) % n


def checked_places(classes: NDArray[Any], y: Any) -> NDArray[np.int64]:
    """Places of the labels y among the sorted classes."""
    labels = np.atleast_1d(_labels(y))
    unknown = labels[~np.isin(labels, classes)]
    if len(unknown):
        raise InputError(f"unknown class {unknown.tolist()[0]!r}; choose from {', '.join(map(repr, classes.tolist()))}")
    return np.searchsorted(classes, labels).astype(np.int64)


def checked_class_prior(classes: NDArray[Any], class_prior: Any) -> NDArray[np.float64]:
    """Frequencies of the classes, in their order and with the sum one, from a list or a mapping of labels."""
    if isinstance(class_prior, Mapping):
        if set(class_prior) != set(classes.tolist()):
            raise InputError(f"class_prior must have a frequency for each of {classes.tolist()}, not {class_prior!r}")
        class_prior = [class_prior[name] for name in classes.tolist()]
    prior = as_array("class_prior", class_prior, np.float64)
    if prior.shape != classes.shape or not (np.isfinite(prior) & (prior >= 0)).all() or not prior.any():
        raise InputError(
            f"class_prior must be {len(classes)} frequencies of at least 0, one per class, not {class_prior!r}"
        )
    relative: NDArray[np.float64] = prior / prior.max()  # its sum cannot overflow
    relative /= relative.sum()
    return relative


def check_share(name: str, value: Any) -> None:
    """Refuse what is not a float between 0 and 1."""
    if not isinstance(value, float) or not 0 < value < 1:
        raise InputError(f"{name} must be a number between 0 and 1, not {value!r}")


def _validated(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    try:
        _check_container(X)
        with np.errstate(all="ignore"):  # infinity is refused in words; numpy need not warn of it too
            return validate_data(estimator, from_tensor("X", X), *y, dtype=np.float64, accept_sparse="csr", **options)
    except InputError:
        raise
    except OverflowError as error:
        raise InputError(f"X holds integers too large for a float ({error}); rescale the features") from error
    except ValueError as error:  # scikit-learn's own words, as an error of ours
        raise InputError(str(error)) from error
    except TypeError as error:
        raise InputTypeError(str(error)) from error
    except Exception as error:  # objects raise what they like when they are converted
        raise _no_array("X", error) from error


def _check_container(X: Any) -> None:
    """Refuse what scikit-learn takes without a word, or what crashes scipy."""
    repeated = sorted(str(name) for name, n in Counter(getattr(X, "columns", ())).items() if n > 1)
    if repeated:
        raise InputError(f"X has more than one column named {', '.join(repeated)}; rename or drop the duplicates")
    if getattr(getattr(X, "dtype", None), "kind", "") in ("m", "M"):
        raise InputError("X holds dates; convert them to numbers first, with a unit and an origin of your choice")
    if hasattr(X, "check_format"):  # sparse rows or columns
        X.check_format(full_check=True)


def _canonical(X: Any) -> Features:
    """Sparse rows with their entries in order, each once and none zero, so that equal rows have equal content."""
    if not issparse(X):
        return np.ascontiguousarray(X)
    X = csr_array(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _labels(y: Any) -> Any:
    """The labels as an array, unless scikit-learn's own checks have better words for what is wrong with them."""
    if y is None:
        return None
    labels = as_array("y", y)
    if labels.dtype.kind in "mM":
        raise InputError(_DATES)
    if labels.dtype.kind in "SV":
        what = "bytes; decode them first" if labels.dtype.kind == "S" else labels.dtype
        raise InputError(f"labels must be strings or numbers, not {what}")
    if labels.dtype.kind == "T":  # numpy's strings of any length, which scikit-learn does not know
        labels = labels.astype(object)
    if labels.dtype.kind in "fO":
        _check_label_values(labels, y)
    return labels


def _check_label_values(labels: NDArray[Any], y: Any) -> None:
    missing = int(np.sum(labels != labels)) if labels.dtype.kind == "f" else sum(map(is_missing, labels.flat))
    if missing:
        raise InputError(
            f"y has {missing:,} missing labels (NaN, NaT or None) of {labels.size:,}; drop those rows of X and y"
        )
    values = labels.flat if labels.dtype.kind == "O" else y if isinstance(y, list | tuple) else ()
    if any(isinstance(x, int) and not -(2**53) <= x <= 2**53 for x in values):
        raise InputError("y holds integers that do not fit into one 64-bit integer type; use strings instead")
    if labels.dtype.kind == "O" and any(hasattr(x, "year") or isinstance(x, np.datetime64) for x in labels.flat):
        raise InputError(_DATES)
    if labels.dtype.kind == "O" and not all(isinstance(x, str) for x in labels.flat):
        kinds = ", ".join(sorted({type(x).__name__ for x in labels.flat}))
        raise InputError(f"Unknown label type: objects ({kinds}); convert it to strings or numbers with y.astype")


def is_missing(label: Any) -> bool:
    """None, NaN, NaT and pandas' NA, the last of which has no truth value when compared."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return bool(isinstance(label, float | np.floating | np.datetime64) and label != label)


def from_tensor(name: str, x: Any) -> Any:
    """A tensor as an array for scikit-learn's checks; everything else as it is, if none of its values is masked."""
    if isinstance(x, np.ma.MaskedArray) and x.mask.any():
        raise InputError(f"{name} has masked values; fill them, or drop their rows")
    if not isinstance(x, Tensor):
        return x
    if x.is_meta:
        raise InputError(f"{name} is a tensor on the meta device, which has a shape but no values")
    if x.layout != torch.strided:
        raise InputError(f"{name} is a sparse tensor; call to_dense() first")
    try:
        x = x.detach().cpu().resolve_conj().resolve_neg()
        return (x.double() if x.is_floating_point() else x).numpy()
    except (RuntimeError, TypeError) as error:  # nested, quantised
        raise _no_array(name, error) from error


def as_array(name: str, x: Any, dtype: type[np.generic] | None = None) -> NDArray[Any]:
    """What a user gave as an array, a list or a tensor."""
    try:
        return np.asarray(from_tensor(name, x), dtype)
    except InputError:
        raise
    except Exception as error:  # objects raise what they like when they are converted
        raise _no_array(name, error, "must be numbers; it " if dtype else "") from error


def _no_array(name: str, error: Exception, demand: str = "") -> InputError:
    return InputError(f"{name} {demand}cannot be turned into an array ({type(error).__name__}: {error})")


def _kind(labels: NDArray[Any]) -> str:
    return {"b": "booleans", "i": "integers", "u": "integers", "f": "floats"}.get(labels.dtype.kind, "strings")
