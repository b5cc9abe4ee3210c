"""Stein variational gradient descent: Liu & Wang, "A General Purpose Bayesian Inference Algorithm", NeurIPS 2016."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pdist


def stein_direction(theta: Float[Tensor, "m d"], gradients: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """The direction of each particle, given the gradients g of log p: sum_j k(j, i) g_j + d k(j, i) / d theta_j.

    k(j, i) = exp(-|theta_j - theta_i|^2 / h) with h = median of the squared distances / log m. Liu & Wang divide by m.
    Like the paper's public code we do not, so that a rate means the same for any number of particles.
    """
    centred = theta - theta.mean(0)  # smaller numbers lose less precision in the differences of squares
    products = centred @ centred.mT
    square_lengths = products.diagonal()
    square_distances = square_lengths[:, None] + square_lengths - 2 * products
    pairs = torch.triu_indices(len(theta), len(theta), 1, device=theta.device)
    h = square_distances[pairs[0], pairs[1]].median() / math.log(len(theta))
    k = torch.exp(-square_distances / h)
    return k @ gradients + (theta * k.sum(1, keepdim=True) - k @ theta) * (2 / h)


def stein_direction_by_distance(theta: Float[Tensor, "m d"], gradients: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """The direction in the paper's public code: k(j, i) = exp(-|theta_j - theta_i| / h), with plain distances.

    h = median of all m x m distances, zeros included, / log m. The repulsion there is the gradient of another kernel,
    exp(-|theta_j - theta_i|^2 / (2 h)), with the values of this one.
    """
    i, j = torch.triu_indices(len(theta), len(theta), 1, device=theta.device)
    upper = theta.new_zeros(len(theta), len(theta)).index_put((i, j), pdist(theta))
    distances = upper + upper.mT
    h = distances.median() / math.log(len(theta))
    k = torch.exp(-distances / h)
    return k @ gradients + (theta * k.sum(1, keepdim=True) - k @ theta) / h
