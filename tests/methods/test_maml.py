import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from polyshot.errors import InputError
from polyshot.methods import build_method
from polyshot.methods.backbones import SupportNorm
from polyshot.methods.maml import MAML
from polyshot.task import Episode, LabelledSet, Space

RNG = np.random.default_rng(0)
VECTORS = Space((3,), 10)


def task(seed: int = 0, n_way: int = 2) -> Episode:
    generator = torch.Generator().manual_seed(seed)
    support, query = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (3 * n_way, 7))
    return Episode(
        LabelledSet(support, torch.arange(n_way).repeat(3)), LabelledSet(query, torch.arange(7) % n_way), n_way
    )


def linear_maml(**options: object) -> MAML:
    torch.manual_seed(0)
    method = build_method("maml", VECTORS, nn.Linear(3, 4), options).double()
    assert isinstance(method, MAML)
    return method


def by_hand(A: Tensor, a: Tensor, W: Tensor, b: Tensor, episode: Episode, n_steps: int, rate: float) -> Tensor:
    """Query logits of W (A x + a) + b after gradient steps with gradients written out."""
    (x, y), query = episode.support, episode.query.x
    for _ in range(n_steps):
        z = x @ A.T + a
        r = ((z @ W.T + b).softmax(1) - torch.eye(episode.n_way, dtype=x.dtype)[y]) / len(y)
        dA, da, dW, db = (r @ W).T @ x, (r @ W).sum(0), r.T @ z, r.sum(0)
        A, a, W, b = A - rate * dA, a - rate * da, W - rate * dW, b - rate * db
    return (query @ A.T + a) @ W.T + b


@pytest.mark.parametrize(("head", "n_way"), [("zero", 2), ("zero", 3), ("per-class", 3)])
def test_inner_steps_are_those_of_a_loop_with_gradients_by_hand(head: str, n_way: int) -> None:
    method = linear_maml(n_steps=3, inner_rate=0.7, head=head, n_way=n_way)
    episode = task(n_way=n_way)
    A, a = (p.detach() for p in method.backbone.parameters())
    W, b = A.new_zeros(n_way, 4), A.new_zeros(n_way)
    if method.head is not None:
        W, b = method.head.weight.detach(), method.head.bias.detach()
    expected = by_hand(A, a, W, b, episode, 3, 0.7)
    prediction = method.adapt(episode.support, n_way)(episode.query.x)
    torch.testing.assert_close(prediction.scores, expected)
    torch.testing.assert_close(prediction.log_probs, expected.log_softmax(-1))
    torch.testing.assert_close(method.loss(episode, RNG), cross_entropy(expected, episode.query.y))


def finite_difference(method: MAML, episode: Episode) -> Tensor:
    """The gradient of the loss with respect to the backbone's weights, by central differences."""
    weight, result = method.backbone.weight.data, []
    for k in range(weight.numel()):
        values = []
        for step in (1e-5, -2e-5, 1e-5):
            weight.view(-1)[k] += step
            values.append(float(method.loss(episode, RNG).detach()))
        result.append((values[0] - values[1]) / 2e-5)
    return torch.tensor(result, dtype=torch.float64).view_as(weight)


def test_the_gradient_goes_through_the_inner_steps_unless_first_order() -> None:
    episode = task()
    gradients = []
    for first_order in (False, True):
        method = linear_maml(n_steps=2, inner_rate=0.7, first_order=first_order)
        method.loss(episode, RNG).backward()
        gradients.append(method.backbone.weight.grad)
    torch.testing.assert_close(gradients[0], finite_difference(method, episode), rtol=1e-6, atol=1e-9)
    assert (gradients[0] - gradients[1]).abs().max() > 0.01


def test_a_learned_start_that_all_classes_share_would_change_nothing() -> None:
    episode = task(n_way=3)
    A, a = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    row = torch.randn(4, dtype=torch.float64)
    zero, shared = (
        by_hand(A, a, W.expand(3, 4), A.new_zeros(3), episode, 3, 0.7) for W in (torch.zeros_like(row), row)
    )
    torch.testing.assert_close(zero.log_softmax(1), shared.log_softmax(1))


def test_a_backbone_with_ordinary_batch_norm_is_trained_and_then_used_with_running_statistics() -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten())
    method = MAML(Space((1, 5, 5), 10), backbone, n_steps=2)
    x, y = torch.rand(6, 1, 5, 5), torch.arange(6) % 2
    method.loss(Episode(LabelledSet(x, y), LabelledSet(x, y), 2), RNG).backward()
    predict = method.adapt(LabelledSet(x, y), 2)
    torch.testing.assert_close(predict(x).scores[:1], predict(x[:1]).scores)


def test_queries_may_be_normalised_by_their_own_statistics() -> None:
    torch.manual_seed(0)
    space, shape = Space((1, 5, 5), 10), (6, 1, 5, 5)
    backbone = nn.Sequential(nn.Conv2d(1, 2, 3), SupportNorm(2), nn.ReLU(), nn.Flatten())
    method = MAML(space, backbone, n_steps=1, inner_rate=0.1, statistics="query", head="per-class", n_way=2)
    support, query = (LabelledSet(torch.randn(shape), torch.arange(6) % 2) for _ in range(2))
    adapted = method._descend(support, 2, second_order=False)
    weights = {name.removeprefix("backbone."): w for name, w in adapted.items() if name.startswith("backbone")}
    convolved = nn.functional.conv2d(query.x, weights["0.weight"], weights["0.bias"])
    normed = nn.functional.batch_norm(convolved, None, None, weights["1.weight"], weights["1.bias"], training=True)
    expected = nn.functional.linear(normed.relu().flatten(1), adapted["head.weight"], adapted["head.bias"])
    torch.testing.assert_close(method.adapt(support, 2)(query.x).scores, expected.detach())
    torch.testing.assert_close(method.loss(Episode(support, query, 2), RNG), cross_entropy(expected, query.y))


def test_the_head_per_class_starts_without_a_bias() -> None:
    head = MAML(VECTORS, head="per-class").head
    assert head is not None
    assert not bool(head.bias.any())
    assert bool(head.weight.all())


def test_frozen_weights_stay_as_they_are() -> None:
    method = linear_maml(n_steps=2, inner_rate=0.7)
    method.backbone.requires_grad_(False)
    episode = task()
    adapted = method._descend(episode.support, 2, second_order=False)
    assert set(adapted) == {"head.weight", "head.bias"}
    assert method.adapt(episode.support, 2)(episode.query.x).scores.shape == (7, 2)


def test_the_protocols_steps_depend_on_the_images() -> None:
    settings = {}
    for shape in [(1, 28, 28), (3, 84, 84), (8,)]:
        method = MAML(Space(shape, 10))
        settings[method.space.kind] = (method.n_steps, method.inner_rate)
        assert len(shape) == 1 or any(isinstance(m, SupportNorm) for m in method.modules())
    assert settings == {"characters": (1, 0.1), "natural": (5, 0.01), "embeddings": (1, 0.1)}


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match=r"MAML: inner_rate must be above 0, not -1\.0"):
        build_method("maml", VECTORS, None, {"inner_rate": -1.0})
    with pytest.raises(InputError, match="needs a backbone that returns vectors"):
        MAML(Space((1, 8, 8), 10), nn.Conv2d(1, 2, 3))
    method = linear_maml(head="per-class", n_way=4)
    with pytest.raises(InputError, match="built for n_way=4, not 2; train it with n_way=2, or with head=zero"):
        method.adapt(task().support, 2)
