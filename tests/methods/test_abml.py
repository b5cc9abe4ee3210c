import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Gamma, Normal, kl_divergence

from polyshot.errors import InputError
from polyshot.methods.abml import ABML
from polyshot.methods.gaussian_layers import GaussianLayer, gaussian_kl, sampling, with_gaussian_weights
from polyshot.task import Episode, LabelledSet, Space

SPACE = Space((3,), 10)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def task(n_way: int = 3) -> Episode:
    x, y = torch.randn(12, 3, generator=generator()), torch.arange(12) % n_way
    return Episode(LabelledSet(x[:6], y[:6]), LabelledSet(x[6:], y[6:]), n_way)


def test_kl_is_torchs() -> None:
    m, v, m0, v0 = torch.randn(4, 2, 3, generator=generator(), dtype=torch.float64)
    q, p = Normal(m, (0.5 * v).exp()), Normal(m0, (0.5 * v0).exp())
    torch.testing.assert_close(gaussian_kl(m, v, m0, v0), kl_divergence(q, p).sum())


def test_the_hyper_priors_gradient_is_torchs() -> None:
    method = ABML(SPACE, nn.Linear(3, 2))
    parameters = list(method.named_parameters())
    means = [p for name, p in parameters if name.endswith("weight")]
    variances = [p for name, p in parameters if name.endswith("log_variance")]
    log_prior = sum(Normal(0.0, 1.0).log_prob(m).sum() for m in means) + sum(
        Gamma(1.0, 0.01).log_prob((-v).exp()).sum() for v in variances
    )
    ours = torch.autograd.grad(method._hyper_prior(), means + variances)
    torch.testing.assert_close(ours, torch.autograd.grad(-log_prior, means + variances))


LAYERS: dict[str, tuple[Callable[[], nn.Conv2d | nn.Linear], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "convolution": (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 4, 4)),
    "grouped": (lambda: nn.Conv2d(2, 4, 3, stride=2, groups=2), (2, 5, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_noise_has_the_moments_of_sampled_weights(name: str) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = GaussianLayer(make(), -1.0)
    nn.init.normal_(layer.log_variance, -1.0, 0.5)
    x = torch.rand(1, *shape)
    # the output is linear in the weights, so its exact variance is the weights' variances through the squared input
    plain = layer.layer
    squared = plain._conv_forward if isinstance(plain, nn.Conv2d) else nn.functional.linear
    with torch.no_grad():
        mean, variance = plain(x)[0], squared(x.square(), layer.log_variance.exp(), None)[0]
        with sampling(layer, generator()):
            draws = torch.cat([layer(x.expand(50, *shape)) for _ in range(400)])
    z = (draws.mean(0) - mean) / (variance / 400).sqrt()  # rows of one flipout call share their draw's size
    assert z.abs().max() < 5
    torch.testing.assert_close(draws.var(0), variance, rtol=0.25, atol=0)


def test_flipout_rows_are_uncorrelated() -> None:
    torch.manual_seed(0)
    layer = GaussianLayer(nn.Conv2d(2, 1, 1, bias=False), 0.0)
    with torch.no_grad(), sampling(layer, generator()):
        draws = torch.stack([layer(torch.ones(2, 2, 1, 1)).flatten() for _ in range(4000)])
    assert abs(float(draws.T.corrcoef()[0, 1])) < 0.06


def test_without_noise_a_gaussian_layer_is_the_layer() -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Sequential(nn.Linear(18, 4)))
    converted = with_gaussian_weights(backbone, -3.0)
    x = torch.rand(2, 1, 5, 5)
    assert torch.equal(converted(x), backbone(x))
    assert sum(isinstance(m, GaussianLayer) for m in converted.modules()) == 2
    assert not any(isinstance(m, GaussianLayer) for m in backbone.modules())


def test_a_row_of_zeros_has_finite_gradients_of_gradients() -> None:
    layer = GaussianLayer(nn.Linear(2, 2), -3.0)
    with sampling(layer, generator()):
        out = layer(torch.zeros(1, 2)).square().sum()
    (first,) = torch.autograd.grad(out, layer.log_variance, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), layer.log_variance)
    assert torch.isfinite(first).all()
    assert torch.isfinite(second).all()


def test_with_next_to_no_variance_the_inner_steps_are_mamls() -> None:
    torch.manual_seed(0)
    method = ABML(
        SPACE, nn.Linear(3, 4), n_steps=3, inner_rate=0.5, inner_kl=0.0, start_variance=1e-16, start_head_variance=1e-16
    ).double()
    support, query, _ = task()
    support, query = (LabelledSet(part.x.double(), part.y) for part in (support, query))
    A, a = method.backbone.layer.weight.detach(), method.backbone.layer.bias.detach()
    W = method.head.layer.weight.detach().expand(3, 4)
    for _ in range(3):
        z = support.x @ A.T + a
        r = ((z @ W.T).softmax(1) - torch.eye(3, dtype=z.dtype)[support.y]) / len(support.y)
        A, W = A - 0.5 * (r @ W).T @ support.x, W - 0.5 * r.T @ z
    expected = (query.x @ A.T + a) @ W.T
    torch.testing.assert_close(method.adapt(support, 3)(query.x).scores, expected, rtol=0, atol=1e-3)


def test_the_kl_holds_the_posterior_at_the_prior() -> None:
    distances = []
    for inner_kl in (0.0, 0.5):
        torch.manual_seed(0)
        method = ABML(SPACE, nn.Linear(3, 4), inner_kl=inner_kl, start_head_variance=0.1, n_steps=20)
        prior = method._prior(3)
        with sampling(method, generator()):
            posterior = method._descend(prior, task().support, 5, second_order=False)
        distances.append(float(method._kl(posterior, prior).detach()))
    assert distances[1] < 0.5 * distances[0]


def test_the_same_seed_answers_the_same_whatever_the_classes_are_called() -> None:
    torch.manual_seed(0)
    method = ABML(SPACE, nn.Linear(3, 4), start_head_variance=0.1)
    support, query, _ = task()
    new_names = torch.tensor([2, 0, 1])
    first = method.adapt(support, 3, seed=1)(query.x)
    second = method.adapt(LabelledSet(support.x, new_names[support.y]), 3, seed=1)(query.x)
    torch.testing.assert_close(first.log_probs, second.log_probs[:, new_names])
    other = method.adapt(support, 3, seed=2)(query.x)
    assert not torch.allclose(first.log_probs, other.log_probs)


def test_samples_are_averaged_as_probabilities_and_differ() -> None:
    torch.manual_seed(0)
    method = ABML(SPACE, nn.Linear(3, 4), n_samples=5, start_head_variance=0.5)
    support, query, _ = task()
    prediction = method.adapt(support, 3)(query.x)
    assert (prediction.log_probs - prediction.scores.log_softmax(-1)).abs().max() > 0.01
    torch.testing.assert_close(prediction.log_probs.exp().sum(-1), torch.ones(6))


def test_gradients_reach_means_variances_and_biases() -> None:
    torch.manual_seed(0)
    method = ABML(SPACE, nn.Linear(3, 4))
    method.loss(task(), np.random.default_rng(0)).backward()
    for name, parameter in method.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_the_default_backbone_has_32_filters() -> None:
    assert ABML(Space((1, 28, 28), 10)).head.layer.in_features == 32
    assert ABML(Space((3, 84, 84), 10)).head.layer.in_features == 800


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="ABML: n_samples must be above 0, not 0"):
        ABML(SPACE, n_samples=0)
    with pytest.raises(InputError, match="ABML: start_variance must be above 0, not nan"):
        ABML(SPACE, start_variance=math.nan)
    with pytest.raises(InputError, match="ABML: train_samples must be above 0, not 0"):
        ABML(SPACE, train_samples=0)


def test_training_may_take_fewer_draws_than_prediction() -> None:
    def method(n_samples: int, train_samples: int | None) -> ABML:
        torch.manual_seed(0)
        return ABML(SPACE, nn.Linear(3, 4), n_samples=n_samples, train_samples=train_samples, start_head_variance=0.5)

    def loss(method: ABML) -> float:
        return float(method.loss(task(), np.random.default_rng(0)).detach())

    support, query, _ = task()
    fewer, few, many = method(5, 2), method(2, None), method(5, None)
    assert loss(fewer) == loss(few) != loss(many)
    predictions = [m.adapt(support, 3, seed=1)(query.x).log_probs for m in (fewer, few, many)]
    assert torch.equal(predictions[0], predictions[2])
    assert not torch.allclose(predictions[0], predictions[1])
