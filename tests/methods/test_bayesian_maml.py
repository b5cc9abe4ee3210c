import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from polyshot.errors import InputError
from polyshot.methods import build_method
from polyshot.methods.bayesian_maml import BayesianMAML, ChaserBayesianMAML, log_posterior_gradient, logits
from polyshot.methods.inner_loop import average, ranks_of_appearance
from polyshot.methods.svgd import stein_direction, stein_direction_by_distance
from polyshot.task import Episode, LabelledSet, Space

SPACE = Space((3,), 10)


def task(n_way: int = 3) -> Episode:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=generator)
    y = torch.arange(12) % n_way
    return Episode(LabelledSet(x[:6], y[:6]), LabelledSet(x[6:], y[6:]), n_way)


def test_stein_direction_is_liu_and_wangs_formula() -> None:
    torch.manual_seed(0)
    theta, gradients = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    squares = [float((theta[i] - theta[j]).square().sum()) for i in range(4) for j in range(i)]
    h = sorted(squares)[2] / math.log(4)  # torch's median is the lower of the two in the middle

    def k(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-(a - b).square().sum() / h)

    expected = torch.zeros_like(theta)
    for i in range(4):
        for j in range(4):
            moving = theta[j].clone().requires_grad_()
            (slope,) = torch.autograd.grad(k(moving, theta[i]), moving)
            expected[i] += k(theta[j], theta[i]) * gradients[j] + slope
    torch.testing.assert_close(stein_direction(theta, gradients), expected)


def test_the_public_codes_direction_uses_plain_distances() -> None:
    torch.manual_seed(0)
    theta, gradients = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    distances = torch.tensor([[float((a - b).norm()) for a in theta] for b in theta], dtype=torch.float64)
    h = distances.flatten().sort().values[12] / math.log(5)  # the median of 25
    k = torch.exp(-distances / h)
    expected = torch.stack(
        [sum(k[j, i] * (gradients[j] + (theta[i] - theta[j]) / h) for j in range(5)) for i in range(5)]
    )
    torch.testing.assert_close(stein_direction_by_distance(theta, gradients), expected)


def test_particles_find_a_gaussian_posterior() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, covariance = torch.tensor([1.0, -2.0]), torch.tensor([[1.0, 0.6], [0.6, 2.0]])
    precision = torch.linalg.inv(covariance)
    theta = torch.randn(100, 2, generator=generator) * 0.1
    for _ in range(2000):
        theta = theta + 0.005 * stein_direction(theta, (mean - theta) @ precision)
    torch.testing.assert_close(theta.mean(0), mean, atol=0.02, rtol=0)
    torch.testing.assert_close(theta.T.cov(), covariance, atol=0, rtol=0.15)


@pytest.mark.parametrize("likelihood", ["sum", "mean"])
def test_the_gradient_of_the_log_posterior_is_autograds(likelihood: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(7, 4, dtype=torch.float64), torch.arange(7) % 3
    theta = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    log_likelihood = -sum(cross_entropy(x @ particle.T, y, reduction=likelihood) for particle in theta)
    (expected,) = torch.autograd.grad(log_likelihood - 0.5 * theta.square().sum(), theta)
    torch.testing.assert_close(log_posterior_gradient(theta, x, y, 7 if likelihood == "mean" else 1), expected)


def test_predictions_average_the_particles_probabilities() -> None:
    z = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    prediction = average(z)
    torch.testing.assert_close(prediction.log_probs.exp(), z.softmax(-1).mean(0))
    torch.testing.assert_close(prediction.scores, z.mean(0))
    weights, x = torch.randn(5, 3, 2), torch.randn(4, 2)
    torch.testing.assert_close(logits(weights, x)[1, 2], weights[1] @ x[2])


def test_classes_are_ranked_by_their_first_example() -> None:
    y = torch.tensor([2, 2, 0, 3, 0, 1])
    assert ranks_of_appearance(y, 4).tolist() == [1, 3, 0, 2]


def test_the_same_seed_answers_the_same_whatever_the_classes_are_called() -> None:
    method = BayesianMAML(SPACE, n_steps=3)
    support, query, _ = task()
    new_names = torch.tensor([2, 0, 1])
    first = method.adapt(support, 3, seed=1)(query.x)
    second = method.adapt(LabelledSet(support.x, new_names[support.y]), 3, seed=1)(query.x)
    torch.testing.assert_close(first.log_probs, second.log_probs[:, new_names])


def test_particles_disagree() -> None:
    method = BayesianMAML(SPACE, n_particles=4)
    episode = task()
    x = torch.nn.functional.pad(episode.support.x, (0, 1), value=1.0)
    theta = method._start(3, np.random.default_rng(0))
    with torch.no_grad():
        probs = logits(method._move(theta, x, episode.support.y, 1, 0.01), x).softmax(-1)
    assert probs.std(0).min() > 0.01


def test_the_losses_are_what_they_are_said_to_be() -> None:
    episode = task()
    method = ChaserBayesianMAML(SPACE, n_particles=3, n_steps=2, n_leader_steps=3, inner_rate=0.01, leader_rate=0.005)
    x, y, n = method._features(episode)
    start = method._start(3, np.random.default_rng(0))
    chaser = method._move(start, x[:n], y[:n], 2, 0.01)
    leader = method._move(chaser, x, y, 3, 0.005)
    square = (chaser - leader).square().sum()
    relative = square / (leader - start).square().sum()
    torch.testing.assert_close(method.loss(episode, np.random.default_rng(0)), relative)
    method.distance = "square"
    torch.testing.assert_close(method.loss(episode, np.random.default_rng(0)), square)
    plain = BayesianMAML(SPACE, n_particles=3, n_steps=2, inner_rate=0.01)
    expected = cross_entropy(average(logits(chaser, x[n:])).log_probs, y[n:])
    torch.testing.assert_close(plain.loss(episode, np.random.default_rng(0)), expected)


@pytest.mark.parametrize("name", ["bayesian-maml", "bayesian-maml-chaser"])
def test_the_backbone_learns(name: str) -> None:
    torch.manual_seed(0)
    method = build_method(name, SPACE, nn.Linear(3, 5))
    method.loss(task(), np.random.default_rng(0)).backward()
    for parameter in method.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


def test_a_head_per_class_is_learned_as_points() -> None:
    torch.manual_seed(0)
    method = BayesianMAML(SPACE, n_particles=4, head="per-class", n_way=3, n_steps=1, inner_rate=0.01)
    episode = task()
    assert method.theta is not None
    x = torch.nn.functional.pad(episode.support.x, (0, 1), value=1.0)
    theta = method.theta + 0.01 * stein_direction(
        method.theta.flatten(1), log_posterior_gradient(method.theta, x, episode.support.y).flatten(1)
    ).view_as(method.theta)
    z = torch.nn.functional.pad(episode.query.x, (0, 1), value=1.0)
    expected = -(z @ theta.mT).softmax(-1).mean(0).log()[range(6), episode.query.y].mean()
    torch.testing.assert_close(method.loss(episode, np.random.default_rng(0)), expected)
    assert not bool(method.theta[..., -1].any())
    with pytest.raises(InputError, match="built for n_way=3, not 2; train it with n_way=2, or with head=gaussian"):
        method.adapt(LabelledSet(episode.support.x[:2], episode.support.y[:2]), 2)


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 particles, not 1"):
        BayesianMAML(SPACE, n_particles=1)
    with pytest.raises(InputError, match="leader_rate must be above 0, not 0"):
        ChaserBayesianMAML(SPACE, leader_rate=0.0)
    with pytest.raises(InputError, match="likelihood must be sum or mean, not 'max'"):
        build_method("bayesian-maml", SPACE, None, {"likelihood": "max"})
