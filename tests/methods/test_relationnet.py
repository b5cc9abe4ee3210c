from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, relu
from toy_tasks import IMAGES, VECTORS, episode

from polyshot.methods.backbones import Conv4
from polyshot.methods.relationnet import RelationModule, RelationNet
from polyshot.task import LabelledSet, Space


def test_probabilities_are_the_normalised_gaussian_likelihood_of_the_scores() -> None:
    support, query, n_way = episode(VECTORS, 4, [1, 2, 3, 2])
    log_probs, scores, *_ = RelationNet(VECTORS).adapt(support, n_way)(query.x)
    assert bool(((scores > 0) & (scores < 1)).all())
    log_likelihood = torch.distributions.Normal(scores[:, None], 1.0).log_prob(torch.eye(n_way)).sum(-1)
    torch.testing.assert_close(log_probs, log_likelihood.log_softmax(-1))


def test_the_loss_is_the_squared_error_to_zeros_and_ones() -> None:
    task = episode(VECTORS)
    method = RelationNet(VECTORS).eval()
    scores = method.adapt(task.support, task.n_way)(task.query.x).scores
    expected = np.mean(
        [(float(s) - (task.query.y[q] == c).item()) ** 2 for (q, c), s in np.ndenumerate(scores.numpy())]
    )
    assert float(method.loss(task, np.random.default_rng(0)).detach()) == pytest.approx(expected, rel=1e-5)


def test_with_the_softmax_loss_scores_are_logits() -> None:
    task = episode(VECTORS)
    method = RelationNet(VECTORS, loss="softmax").eval()
    log_probs, scores, *_ = method.adapt(task.support, task.n_way)(task.query.x)
    torch.testing.assert_close(log_probs, scores.log_softmax(-1))
    expected = -log_probs[range(len(task.query.y)), task.query.y].mean()
    torch.testing.assert_close(method.loss(task, np.random.default_rng(0)).detach(), expected)


def test_a_class_is_the_mean_of_its_maps() -> None:
    support, query, n_way = episode(IMAGES)
    twice = LabelledSet(torch.cat([support.x, support.x[:2]]), torch.cat([support.y, support.y[:2]]))
    method = RelationNet(IMAGES)
    once, repeated = (method.adapt(s, n_way)(query.x).scores for s in (support, twice))
    torch.testing.assert_close(once, repeated)


@pytest.mark.parametrize("shape", [(6,), (4, 1, 1), (4, 2, 3), (4, 5, 5), (3, 1, 7), (4, 19, 19)])
def test_the_relation_module_compares_every_query_with_every_class(shape: tuple[int, ...]) -> None:
    module = RelationModule(shape).eval()
    d = int(np.prod(shape))
    x, classes = torch.randn(5, d), torch.randn(3, d)
    scores = module(x, classes)
    assert scores.shape == (5, 3)
    pairs = [[float(module(x[[q]], classes[[c]]).detach()) for c in range(3)] for q in range(5)]
    np.testing.assert_allclose(scores.detach(), pairs, atol=1e-5)


def test_the_relation_module_of_vectors_is_fully_connected() -> None:
    module = RelationModule((6,)).eval()
    x, classes = torch.randn(1, 6), torch.randn(1, 6)
    h = torch.cat([classes, x], dim=1)
    for layer in module.layers:
        if isinstance(layer, nn.Conv2d):
            assert layer.kernel_size == (1, 1)
            h = h @ layer.weight[:, :, 0, 0].T + layer.bias
        if isinstance(layer, nn.BatchNorm2d):
            h = relu(batch_norm(h, layer.running_mean, layer.running_var, layer.weight, layer.bias))
    first, second = (layer for layer in module.layers if isinstance(layer, nn.Linear))
    torch.testing.assert_close(module(x, classes), second(relu(first(h))))


@pytest.mark.parametrize(
    ("network", "shape", "side", "padding", "features"),
    [
        ("two-pools", (3, 84, 84), 19, 0, 64 * 3 * 3),
        ("two-pools", (1, 28, 28), 5, "same", 64),
        ("conv4", (3, 84, 84), 5, "same", 64),
    ],
)
def test_images_are_compared_as_maps_like_the_originals(
    network: Literal["two-pools", "conv4"], shape: tuple[int, ...], side: int, padding: int | str, features: int
) -> None:
    method = RelationNet(Space(shape, 5), network=network)
    assert method.relation.map_shape == (64, side, side)
    layers = [layer for layer in method.relation.layers if isinstance(layer, nn.Conv2d)]
    assert [layer.kernel_size for layer in layers] == [(3, 3), (3, 3)]
    assert {layer.padding for layer in layers} == {padding if padding == "same" else (0, 0)}
    assert method.relation.layers[-3].in_features == features


def test_the_relation_modules_convolutions_are_initialised_too() -> None:
    torch.manual_seed(0)
    method = RelationNet(IMAGES, init="he-fan-out")
    weight = next(layer.weight for layer in method.relation.modules() if isinstance(layer, nn.Conv2d))
    assert weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.05)


def test_a_backbone_that_gives_vectors_can_be_passed() -> None:
    task = episode(IMAGES)
    method = RelationNet(IMAGES, Conv4(1, width=8))
    assert method.adapt(task.support, task.n_way)(task.query.x).scores.shape == (9, 3)


def test_the_last_batch_gives_the_statistics_of_evaluation_if_asked_for() -> None:
    torch.manual_seed(0)
    last, running = (RelationNet(Space((1, 28, 28), 5), statistics=name) for name in ("last", "running"))
    running.load_state_dict(last.state_dict())
    batches = [torch.rand(6, 1, 28, 28) for _ in range(2)]
    for method in (last, running):
        for batch in batches:
            features = method.backbone(batch).flatten(1)
            method.scores(features, features[:2])
    first = torch.nn.Sequential(*last.relation.layers[:1])
    features = last.backbone(batches[1]).flatten(1)
    pairs = torch.cat([features[:2].view(-1, 64, 5, 5).repeat(6, 1, 1, 1),
                       features.view(-1, 64, 5, 5).repeat_interleave(2, 0)], 1)  # fmt: skip
    expected = first(pairs).mean((0, 2, 3))
    torch.testing.assert_close(last.relation.layers[1].running_mean, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(running.relation.layers[1].running_mean, expected, rtol=1e-2)
