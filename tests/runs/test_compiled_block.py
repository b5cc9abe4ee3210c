"""Batch normalisation, max-pooling and ReLU in one compiled step, beside torch's own three."""

import copy

import pytest
import torch
from torch import Tensor, nn

from polyshot.methods.backbones import Conv4
from polyshot.runs.compiled_block import NormPoolReLU
from polyshot.runs.precision import train_in_bfloat16


def _norm(n_channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(n_channels, momentum=0.3)
    with torch.no_grad():
        norm.weight.uniform_(-1, 2)  # a negative weight turns the order within a window round
        norm.weight[0] = 0
        norm.bias.normal_()
    return norm


def _images(*shape: int) -> Tensor:
    return (3 + 2 * torch.randn(shape)).bfloat16().contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("shape", [(6, 5, 8, 8), (4, 16, 7, 5), (3, 33, 2, 3)])
def test_outputs_gradients_and_running_statistics_are_torchs(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    norm, z = _norm(shape[1]), _images(*shape).requires_grad_()
    exact, z_exact = copy.deepcopy(norm).double(), z.detach().double().requires_grad_()
    out = NormPoolReLU.apply(z, norm.weight, norm.bias, norm)
    reference = torch.relu(nn.functional.max_pool2d(exact(z_exact), 2))
    torch.testing.assert_close(out.double(), reference, rtol=2**-8, atol=1e-5)  # to the rounding of bfloat16

    g = torch.randn_like(out)
    out.backward(g)
    reference.backward(g.double())
    # Each rounding of a sum is relative to its largest term, not to the sum.
    largest = z_exact.grad.abs().amax((0, 2, 3), keepdim=True)
    assert float(((z.grad - z_exact.grad).abs() / (largest + 1e-9)).max()) < 2**-7
    torch.testing.assert_close(norm.weight.grad.double(), exact.weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(norm.bias.grad.double(), exact.bias.grad, rtol=1e-4, atol=1e-4)
    for name, buffer in norm.named_buffers():
        torch.testing.assert_close(buffer.double(), exact.get_buffer(name).double(), rtol=1e-5, atol=1e-5)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    torch.manual_seed(0)
    norm, z, results = _norm(64), _images(40, 64, 66, 66).requires_grad_(), []
    g = torch.randn(40, 64, 33, 33, dtype=torch.bfloat16)
    before = torch.get_num_threads()
    try:
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            out = NormPoolReLU.apply(z, norm.weight, norm.bias, norm)
            results.append((out, *torch.autograd.grad(out, [z, norm.weight, norm.bias], g)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_nan_is_passed_on() -> None:
    norm, z = _norm(2), _images(3, 2, 4, 4)
    z[1, 1, 2, 2] = torch.nan
    out = NormPoolReLU.apply(z.requires_grad_(), norm.weight, norm.bias, norm)
    assert out[:, 0].isfinite().all()
    assert out[:, 1].isnan().all()
    out.sum().backward()
    assert z.grad[:, 0].isfinite().all()
    assert z.grad[:, 1].isnan().all()


def test_a_second_derivative_is_refused() -> None:
    norm, z = _norm(2), _images(3, 2, 4, 4).requires_grad_()
    out = NormPoolReLU.apply(z, norm.weight, norm.bias, norm)
    (gradient,) = torch.autograd.grad(out.square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_only_ordinary_blocks_in_training_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    apply = NormPoolReLU.apply
    monkeypatch.setattr(NormPoolReLU, "apply", lambda *arguments: calls.append(1) or apply(*arguments))
    x = torch.randn(4, 1, 28, 28)

    def n_fused(network: nn.Module, fuse: bool = True) -> int:
        calls.clear()
        train_in_bfloat16(network, fuse=fuse)
        network(x)
        return len(calls)

    assert n_fused(Conv4(1)) == 4
    assert n_fused(Conv4(1).eval()) == 0
    assert n_fused(Conv4(1), fuse=False) == 0
    assert n_fused(Conv4(1, norm="support")) == 0
    assert n_fused(Conv4(1, pools=2)) == 2
    assert n_fused(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(3), nn.ReLU())) == 0
    assert n_fused(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, affine=False), nn.MaxPool2d(2), nn.ReLU())) == 0
