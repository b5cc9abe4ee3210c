import math
from pathlib import Path

import pytest
import torch
from torch import nn

from polyshot.errors import InputError
from polyshot.methods import build_method
from polyshot.methods.backbones import Conv4, SupportNorm, build_backbone, find_backbone, support_rows
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.task import Space


@pytest.mark.parametrize(
    ("channels", "side", "features"),
    [(1, 28, 64), (3, 84, 1600)],
)
def test_conv4_gives_the_papers_number_of_features(channels: int, side: int, features: int) -> None:
    assert Conv4(channels)(torch.rand(3, channels, side, side)).shape == (3, features)


def test_width_and_map_can_be_chosen() -> None:
    x = torch.rand(2, 3, 84, 84)
    assert Conv4(3, width=32)(x).shape == (2, 800)
    assert Conv4(3, flatten=False)(x).shape == (2, 64, 5, 5)


def test_with_two_pools_it_is_the_network_of_relation_networks() -> None:
    network = Conv4(1, flatten=False, pools=2)
    assert network(torch.rand(2, 1, 28, 28)).shape == (2, 64, 5, 5)
    assert Conv4(3, flatten=False, pools=2)(torch.rand(2, 3, 84, 84)).shape == (2, 64, 19, 19)
    kinds = [[type(layer).__name__ for layer in block] for block in network.blocks]
    assert kinds == [["Conv2d", "BatchNorm2d", "MaxPool2d", "ReLU"]] * 2 + [["Conv2d", "BatchNorm2d", "ReLU"]] * 2
    assert [block[0].padding for block in network.blocks] == [(0, 0), (0, 0), (1, 1), (1, 1)]


def test_the_public_codes_convolutions_start_from_a_wider_gaussian() -> None:
    torch.manual_seed(0)
    weights = [layer.weight for layer in Conv4(3, init="he-fan-out").modules() if isinstance(layer, nn.Conv2d)]
    for weight in weights:
        assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 64)), rel=0.05)
        assert abs(weight.mean().item()) < 0.005
    # as gaussian as 36,864 draws are
    assert (weights[1].abs() < math.sqrt(2 / (9 * 64))).float().mean().item() == pytest.approx(0.6827, abs=0.01)


def test_a_given_backbone_keeps_its_weights() -> None:
    backbone = Conv4(1)
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    method = build_method("protonet", Space((1, 28, 28), 5), backbone, {"init": "he-fan-out"})
    assert all(torch.equal(value, before[name]) for name, value in method.backbone.state_dict().items())


def test_conv4_has_the_papers_layers() -> None:
    parameters = sum(p.numel() for p in Conv4(1).parameters())
    assert parameters == (9 + 1) * 64 + 3 * (9 * 64 + 1) * 64 + 4 * 2 * 64
    kinds = [[type(layer).__name__ for layer in block] for block in Conv4(1).blocks]
    assert kinds == [["Conv2d", "BatchNorm2d", "MaxPool2d", "ReLU"]] * 4


def test_relu_after_pooling_is_the_papers_relu_before_it() -> None:
    torch.manual_seed(0)
    ours = Conv4(1)
    papers = torch.nn.Sequential(
        *(torch.nn.Sequential(conv, norm, relu, pool) for conv, norm, pool, relu in ours.blocks), torch.nn.Flatten()
    )
    x = torch.rand(6, 1, 28, 28).contiguous(memory_format=torch.channels_last)
    expected, features = papers(x), ours(x)
    assert torch.equal(features, expected)
    weights, parameters = torch.randn_like(features), list(ours.parameters())
    for gradient, right in zip(
        torch.autograd.grad((weights * features).sum(), parameters),
        torch.autograd.grad((weights * expected).sum(), parameters),
        strict=True,
    ):
        assert torch.equal(gradient, right)


def test_features_come_in_the_order_of_a_contiguous_network() -> None:
    torch.manual_seed(0)
    network = Conv4(3).eval()
    x = torch.rand(4, 3, 84, 84)
    plain = network.blocks.to(memory_format=torch.contiguous_format)
    expected = torch.nn.Sequential(plain, torch.nn.Flatten())(x)
    torch.testing.assert_close(network(x), expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_uses_the_batchs_statistics_in_training_only() -> None:
    x = torch.rand(4, 1, 28, 28)
    running = Conv4(1).eval()
    assert torch.allclose(running(x)[:1], running(x[:1]), atol=1e-5)
    running.train()
    assert not torch.allclose(running(x)[:1], running(x[:1]), atol=1e-2)


def test_support_norm_is_batch_norm_on_the_support_rows() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3, 5, 5) * 2 + 1
    ours, batch = SupportNorm(3), torch.nn.BatchNorm2d(3)
    for norm in (ours, batch):
        norm.weight.data = torch.tensor([0.5, 1.0, 2.0])
        norm.bias.data = torch.tensor([-1.0, 0.0, 1.0])
    torch.testing.assert_close(ours(x), batch(x))
    with support_rows(ours, 4):
        torch.testing.assert_close(ours(x)[:4], batch(x[:4]))


def test_with_support_norm_queries_neither_see_each_other_nor_change_the_support() -> None:
    torch.manual_seed(0)
    network = Conv4(1, norm="support").eval()
    x = torch.rand(9, 1, 28, 28)
    with support_rows(network, 5):
        features = network(x)
        torch.testing.assert_close(network(torch.cat([x[:5], x[8:]]))[5], features[8])
        torch.testing.assert_close(network(x[:5]), features[:5])
        assert torch.equal(network.train()(x), features)
    assert not torch.allclose(network(x), features)
    assert not any("running" in name for name in network.state_dict())


def test_gradients_of_gradients_of_support_norm_are_right() -> None:
    torch.manual_seed(0)
    norm = SupportNorm(2).double()
    x = torch.randn(4, 2, 2, 2, dtype=torch.float64, requires_grad=True)

    def normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x,))

    with support_rows(norm, 3):
        assert torch.autograd.gradgradcheck(normalised, (x, norm.weight, norm.bias))


def test_a_backbone_is_built_by_name_for_the_examples() -> None:
    grey, colour = Space((1, 28, 28), 5), Space((3, 84, 84), 5)
    assert build_backbone("conv4", grey)(torch.rand(2, 1, 28, 28)).shape == (2, 64)
    assert build_backbone("conv4", colour)(torch.rand(2, 3, 84, 84)).shape == (2, 1600)
    x = torch.rand(2, 5)
    assert torch.equal(build_backbone("identity", Space((5,), 3))(x), x)


def test_a_backbone_is_built_by_its_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    space = Space((3, 8, 8), 5)
    backbone = build_backbone("my_networks:Pooled", space)
    assert type(backbone) is find_backbone("my_networks:Pooled")
    assert backbone(torch.rand(2, 3, 8, 8)).shape == (2, 3)
    assert backbone.calls == 1  # building it left it alone
    assert build_backbone("torch.nn:Flatten", space)(torch.rand(2, 3, 8, 8)).shape == (2, 192)


NETWORKS = """
from torch import nn

class Pooled(nn.Module):
    def __init__(self, in_channels):
        super().__init__()
        self.scale, self.calls = nn.Linear(in_channels, 3), 0

    def forward(self, x):
        self.calls += 1
        return self.scale(x.mean((2, 3)))
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet", "unknown backbone 'resnet'; choose from conv4, identity"),
        ("no_such_module:Net", "the backbone 'no_such_module:Net' cannot be imported .*No module named"),
        ("torch.nn:NoSuchNet", "cannot be imported .*NoSuchNet.*such as my_networks:ResNet"),
        ("math:pi", r"the backbone 'math:pi' is not a class of nn\.Module; give the path of one, or register it"),
        ("fractions:Fraction", r"'fractions:Fraction' is not a class of nn\.Module"),
        ("os:abort", r"'os:abort' is not a class of nn\.Module"),
        ("torch.nn:Linear", r"'torch.nn:Linear' does not work for characters of shape \[1, 28, 28\]"),
        ("torch.nn:LSTM", "'torch.nn:LSTM' does not work"),
    ],
)
def test_an_unusable_backbone_is_an_input_error(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_backbone(name, Space((1, 28, 28), 5))


def test_conv4_does_not_take_embeddings() -> None:
    with pytest.raises(InputError, match=r"'conv4' does not work for embeddings of shape \[12\]"):
        build_backbone("conv4", Space((12,), 5))


def test_tied_weights_are_saved_and_loaded(tmp_path: Path) -> None:
    def tied() -> nn.Sequential:
        network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        network[1].weight = network[0].weight
        return network

    first, second = tied(), tied()
    save_checkpoint(tmp_path / "weights.safetensors", first.state_dict(), {})
    second.load_state_dict(load_checkpoint(tmp_path / "weights.safetensors")[0])
    x = torch.rand(3, 4)
    assert torch.equal(first(x), second(x))
    assert second[1].weight is second[0].weight
