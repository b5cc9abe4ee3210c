import pytest
import torch

from polyshot.errors import InputError
from polyshot.methods.backbones import BACKBONES, Conv4, SupportNorm, build_backbone, support_rows


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


def test_every_registered_backbone_can_be_built_by_name() -> None:
    assert set(BACKBONES) == {"conv4", "identity"}
    assert build_backbone("conv4", in_channels=1, width=8)(torch.rand(2, 1, 28, 28)).shape == (2, 8)
    x = torch.rand(2, 5)
    assert torch.equal(build_backbone("identity")(x), x)
    with pytest.raises(InputError, match="no backbone 'resnet'; there is conv4, identity"):
        build_backbone("resnet")
