"""Checks of the input before any algebra. An InputError says what is wrong and what is expected."""

import torch
from torch import Tensor

from polyshot.errors import InputError

NOT_DEFINITE = "the kernel matrix is not positive semi-definite in double precision, or its scale is too large"
# A float32 kernel matrix is symmetric and positive semi-definite up to about 1e-6 of its size.
_SLACK = 1e-4


def check_task(K: Tensor, y: Tensor, n_way: int) -> tuple[Tensor, Tensor]:
    """Check a support set; return K [*batch, N, N] in double precision and y [*batch, N] as int64."""
    if K.ndim < 2 or K.shape[-1] != K.shape[-2]:
        raise InputError(f"K must be square, [..., N, N]; its shape is {tuple(K.shape)}")
    if K.shape[-1] == 0:
        raise InputError("the support set is empty; give at least one labelled example")
    if K.shape[:-1] != y.shape:
        raise InputError(f"K of shape {tuple(K.shape)} needs labels [..., N]; y has shape {tuple(y.shape)}")
    if K.numel() == 0:
        raise InputError(f"the batch of shape {tuple(K.shape[:-2])} has no tasks; give at least one")
    if n_way < 2:
        raise InputError(f"classification needs at least two classes, but n_way is {n_way}")
    labels = check_labels("labels", y, n_way)
    check_finite_tensor("K", K)
    _check_kernel_matrix(K.detach())
    return K.double(), labels


def check_labels(name: str, y: Tensor, n_way: int) -> Tensor:
    """Check that labels are whole numbers in 0..n_way-1; return them as int64."""
    if y.is_floating_point() and bool((y != y.round()).any()):
        raise InputError(f"{name} must be whole numbers, but some are fractions")
    if bool(((y < 0) | (y >= n_way)).any()):
        raise InputError(f"{name} must lie in 0..{n_way - 1}, but they range from {int(y.min())} to {int(y.max())}")
    return y.long()


def check_positive_count(name: str, count: int) -> None:
    """Check that a count is at least one."""
    if count < 1:
        raise InputError(f"{name} must be at least 1, not {count}")


def checked_weights(weights: Tensor | None, y: Tensor) -> Tensor:
    """Check one weight above zero per example; return them in double precision, all one if None was given."""
    if weights is None:
        return torch.ones(y.shape[-1], dtype=torch.float64, device=y.device)
    if weights.shape != y.shape[-1:]:
        raise InputError(
            f"example_weights must be [N] for {y.shape[-1]} examples; their shape is {tuple(weights.shape)}"
        )
    if not bool((torch.isfinite(weights) & (weights > 0)).all()):
        raise InputError("example_weights must be positive and finite; leave out examples of weight zero")
    return weights.to(y.device).double()


def check_finite_tensor(name: str, x: Tensor) -> None:
    """Check that a tensor has no NaN and no infinity.

    Parameters
    ----------
    name : str
        What the tensor is, for the message "NAME contains NaN or infinity".
    x : Tensor
        The tensor to check.
    """
    if not bool(torch.isfinite(x).all()):
        raise InputError(f"{name} contains NaN or infinity")


def check_sites(K: Tensor, omega: Tensor, kappa: Tensor) -> None:
    """Check that sites [*batch, M, N, C] belong to K [*batch, N, N]."""
    batch, n = K.shape[:-2], K.shape[-1]
    if omega.shape != kappa.shape or omega.ndim != K.ndim + 1 or (omega.shape[:-3], omega.shape[-2]) != (batch, n):
        raise InputError(
            f"sites must be [..., M, N, C] with N = {n} examples; omega has shape {tuple(omega.shape)}, "
            f"kappa {tuple(kappa.shape)}, K {tuple(K.shape)}"
        )


def check_query(K: Tensor, K_star: Tensor, k_star_star: Tensor) -> tuple[Tensor, Tensor]:
    """Check that K_star [*batch, Q, N] and k_star_star [*batch, Q] belong to K; return them in double precision."""
    if K_star.ndim != K.ndim or (K_star.shape[:-2], K_star.shape[-1]) != (K.shape[:-2], K.shape[-1]):
        raise InputError(f"K_star must be [..., Q, N] for K {tuple(K.shape)}; its shape is {tuple(K_star.shape)}")
    if k_star_star.shape != K_star.shape[:-1]:
        raise InputError(
            f"k_star_star must be [..., Q] for K_star {tuple(K_star.shape)}; its shape is {tuple(k_star_star.shape)}"
        )
    check_finite_tensor("K_star", K_star)
    check_finite_tensor("k_star_star", k_star_star)
    return K_star.double(), k_star_star.double()


def check_features(x: Tensor, z: Tensor) -> None:
    """Check that feature vectors x [*batch, N, D] and z [*batch, M, D] have the same width and batch."""
    if x.ndim < 2 or z.ndim != x.ndim or x.shape[:-2] != z.shape[:-2] or x.shape[-1] != z.shape[-1]:
        raise InputError(
            f"a kernel takes vectors [..., N, D] and [..., M, D]; the shapes are {tuple(x.shape)} and {tuple(z.shape)}"
        )


def _check_kernel_matrix(K: Tensor) -> None:
    """Check symmetry and that no 2 x 2 minor is negative: what O(N^2) operations can tell about definiteness."""
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    largest = diagonal.amax(-1)[..., None, None].clamp(min=0)
    if bool(((K - K.mT).abs() > _SLACK * largest).any()):
        raise InputError("K is not symmetric")
    bound = (diagonal.clamp(min=0)[..., :, None] * diagonal.clamp(min=0)[..., None, :]).sqrt()
    if bool((diagonal < 0).any()) or bool((K.abs() > bound + _SLACK * largest).any()):
        raise InputError("K is not positive semi-definite: an entry is larger than its two diagonal entries allow")
