"""Batch normalisation, 2x2 max-pooling and ReLU as one compiled step on bfloat16 images, forward and backward.

Three library calls read and write the large maps several times each, and the largest map is read by no one else.
Together they took longer than the convolutions. Sums are per image and then added in double precision, so the results
do not depend on the number of threads.
"""

from typing import Any, no_type_check

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from polyshot.gp.compiled.threads import in_threads

# No `nnan`, because a diverged network must be noticed.
_OPTIONS = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc", "nsz", "arcp"}, "error_model": "numpy"}
_ALL_WENT_WELL = -1


@no_type_check
@intrinsic
def _as_float(_context, bits):
    def build(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), build


@no_type_check
@intrinsic
def _as_bits(_context, value):
    def build(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), build


@no_type_check
@njit(**_OPTIONS, forceinline=True)
def _wide(b):
    """bfloat16, given as 16 bits, in float32."""
    return _as_float(np.uint32(np.uint32(b) << np.uint32(16)))


@no_type_check
@njit(**_OPTIONS, forceinline=True)
def _narrow(v):
    """float32 rounded to the nearest bfloat16, as 16 bits; of two equally near ones the even one."""
    u = _as_bits(v)
    return np.uint16(np.uint32(u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@no_type_check
@njit(**_OPTIONS)
def _sums(Z, sums, squares, first, last):
    """Sum and sum of squares of each image and channel."""
    n_channels = Z.shape[3]
    s, q = np.empty(n_channels, np.float32), np.empty(n_channels, np.float32)
    for i in range(first, last):
        s[:], q[:] = 0, 0
        for a in range(Z.shape[1]):
            for b in range(Z.shape[2]):
                for c in range(n_channels):
                    v = _wide(Z[i, a, b, c])
                    s[c] += v
                    q[c] += v * v
        sums[i], squares[i] = s, q
    return _ALL_WENT_WELL


@no_type_check
@njit(**_OPTIONS)
def _forward(Z, scale, shift, out, peak, place, first, last):
    """out = max(0, scale z + shift), the largest of each 2x2 window. `peak` is that z; `place` is 4 if out is 0."""
    for i in range(first, last):
        for a in range(out.shape[1]):
            for b in range(out.shape[2]):
                for c in range(Z.shape[3]):
                    z0, z1 = _wide(Z[i, 2 * a, 2 * b, c]), _wide(Z[i, 2 * a, 2 * b + 1, c])
                    z2, z3 = _wide(Z[i, 2 * a + 1, 2 * b, c]), _wide(Z[i, 2 * a + 1, 2 * b + 1, c])
                    best, z, at = scale[c] * z0 + shift[c], z0, np.uint32(0)
                    v = scale[c] * z1 + shift[c]
                    best, z, at = (v, z1, np.uint32(1)) if v > best else (best, z, at)
                    v = scale[c] * z2 + shift[c]
                    best, z, at = (v, z2, np.uint32(2)) if v > best else (best, z, at)
                    v = scale[c] * z3 + shift[c]
                    best, z, at = (v, z3, np.uint32(3)) if v > best else (best, z, at)
                    out[i, a, b, c] = _narrow(np.float32(0) if best <= 0 else best)
                    peak[i, a, b, c] = _narrow(z)
                    place[i, a, b, c] = np.uint8(np.uint32(4) if best <= 0 else at)
    return _ALL_WENT_WELL


@no_type_check
@njit(**_OPTIONS)
def _gradient_sums(G, peak, place, sums, products, first, last):
    """Sum of the gradient, and of the gradient times z, over the places that it reaches."""
    n_channels = G.shape[3]
    s, q = np.empty(n_channels, np.float32), np.empty(n_channels, np.float32)
    for i in range(first, last):
        s[:], q[:] = 0, 0
        for a in range(G.shape[1]):
            for b in range(G.shape[2]):
                for c in range(n_channels):
                    g = _wide(G[i, a, b, c]) if place[i, a, b, c] < 4 else np.float32(0)
                    s[c] += g
                    q[c] += g * _wide(peak[i, a, b, c])
        sums[i], products[i] = s, q
    return _ALL_WENT_WELL


@no_type_check
@njit(**_OPTIONS)
def _backward(G, place, Z, scale, offset, slope, out, first, last):
    """out = scale g - offset - slope z, where g is 0 at all places but those of the largest values."""
    height, width = 2 * G.shape[1], 2 * G.shape[2]
    for i in range(first, last):
        for a in range(Z.shape[1]):
            for b in range(Z.shape[2]):
                if a < height and b < width:
                    here = np.uint32(a % 2 * 2 + b % 2)
                    for c in range(Z.shape[3]):
                        g = scale[c] * _wide(G[i, a // 2, b // 2, c])
                        g = g if place[i, a // 2, b // 2, c] == here else np.float32(0)
                        out[i, a, b, c] = _narrow(g - offset[c] - slope[c] * _wide(Z[i, a, b, c]))
                else:  # the last row or column of an odd size is in no window
                    for c in range(Z.shape[3]):
                        out[i, a, b, c] = _narrow(-offset[c] - slope[c] * _wide(Z[i, a, b, c]))
    return _ALL_WENT_WELL


class NormPoolReLU(torch.autograd.Function):
    """relu(max_pool2d(batch_norm(z), 2)) in training mode, for bfloat16 z [n, c, h, w]; updates the running statistics.

    It has a first derivative only.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d) -> Tensor:
        """The block's output, in bfloat16."""
        n, c, h, w = z.shape
        Z, m = _bits(z), n * h * w
        sums, squares = np.empty((2, n, c))
        _in_threads(_sums, z, Z, sums, squares)
        mean = sums.sum(0) / m
        variance = np.maximum(squares.sum(0) / m - mean**2, 0)
        _update(norm, mean, variance * m / (m - 1))
        inverse = 1 / np.sqrt(variance + norm.eps)
        scale = weight.detach().double().numpy() * inverse
        shift = bias.detach().double().numpy() - mean * scale
        small = (n, c, h // 2, w // 2)
        out, peak = (torch.empty(small, dtype=z.dtype, memory_format=torch.channels_last) for _ in range(2))
        place = torch.empty((n, h // 2, w // 2, c), dtype=torch.uint8)
        _in_threads(_forward, z, Z, np.float32(scale), np.float32(shift), _bits(out), _bits(peak), place.numpy())
        ctx.save_for_backward(z, peak, place)
        ctx.statistics = mean, inverse, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Gradients with respect to z, weight and bias."""
        z, peak, place = ctx.saved_tensors
        mean, inverse, scale = ctx.statistics
        n, c, h, w = z.shape
        G, m = _bits(gradient.to(z.dtype)), n * h * w
        sums, products = np.empty((2, n, c))
        _in_threads(_gradient_sums, peak, G, _bits(peak), place.numpy(), sums, products)
        d_bias = sums.sum(0)
        d_weight = (products.sum(0) - mean * d_bias) * inverse
        slope = scale * inverse * d_weight / m
        offset = scale * d_bias / m - slope * mean
        out = torch.empty_like(z, memory_format=torch.channels_last)
        _in_threads(
            _backward, z, G, place.numpy(), _bits(z),
            np.float32(scale), np.float32(offset), np.float32(slope), _bits(out),
        )  # fmt: skip
        return out, torch.from_numpy(d_weight).float(), torch.from_numpy(d_bias).float(), None


def _bits(x: Tensor) -> np.ndarray:
    """The bits of bfloat16 images as uint16 [n, h, w, c]; shares their memory if they are in channels-last format."""
    return x.detach().permute(0, 2, 3, 1).contiguous().view(torch.int16).numpy().view(np.uint16)


def _in_threads(loop: Any, x: Tensor, *arguments: Any) -> None:
    in_threads(lambda first, last: loop(*arguments, first, last), len(x), x[0].numel())


def _update(norm: Any, mean: np.ndarray, variance: np.ndarray) -> None:
    with torch.no_grad():
        norm.num_batches_tracked += 1
        for running, now in ((norm.running_mean, mean), (norm.running_var, variance)):
            running.lerp_(torch.from_numpy(now).float(), norm.momentum)
