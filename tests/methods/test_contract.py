"""What every registered method must do; a new line in METHODS is tested here automatically."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from every_method import FEWER, SAMPLED, build, every_method
from torch import Tensor, nn
from toy_tasks import IMAGES, VECTORS, episode

from polyshot.data import ClassSet, EpisodeSampler
from polyshot.data.transforms import identity
from polyshot.methods import METHODS, FewShotMethod, build_method
from polyshot.runs.features import on_features
from polyshot.system.settings import keyword_settings
from polyshot.task import Episode, LabelledSet, Prediction, Space


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def train(method: FewShotMethod, episodes: Sequence[Episode], n_steps: int, rate: float = 1e-3) -> None:
    optimizer = torch.optim.Adam(method.parameter_groups(rate), lr=rate)
    method.train()
    for k in range(n_steps):
        optimizer.zero_grad()
        method.loss(episodes[k % len(episodes)], rng(k)).backward()
        optimizer.step()


def predict(method: FewShotMethod, task: Episode, seed: int = 0) -> Prediction:
    return method.adapt(task.support, task.n_way, seed)(task.query.x)


def equal(one: Prediction, other: Prediction) -> bool:
    return torch.equal(one.log_probs, other.log_probs) and torch.equal(one.scores, other.scores)


def assert_close(one: Prediction, other: Prediction, tolerance: float = 1e-5) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@contextmanager
def restored(module: nn.Module) -> Iterator[None]:
    """Afterwards the state is the same as before."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    yield
    module.load_state_dict(state)


@every_method
def test_the_loss_is_finite_and_falls_on_a_toy_task(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, VECTORS, nn.Linear(12, 8))
    tasks = [episode(VECTORS, seed=seed) for seed in range(3)]

    def mean_loss() -> float:
        return float(np.mean([float(method.loss(task, rng(k)).detach()) for k, task in enumerate(tasks)]))

    before = mean_loss()
    train(method, tasks, 60, rate=1e-2)
    after = mean_loss()
    assert np.isfinite(before)
    assert after < before - 0.1 * abs(before)


@every_method
@pytest.mark.parametrize("space", [IMAGES, VECTORS], ids=["images", "vectors"])
def test_gradients_reach_every_parameter(name: str, options: dict[str, Any], space: Space) -> None:
    method = build(name, options, space)
    if not list(method.parameters()):
        pytest.skip(f"{name} has no parameters of its own")
    unreached: list[str] = []
    for seed in range(20):  # a loss may reach different parameters from draw to draw
        method.loss(episode(space), rng(seed)).backward()
        unreached = [key for key, p in method.named_parameters() if p.grad is None or not bool(p.grad.any())]
        if not unreached:
            break
    assert unreached == []
    assert all(bool(torch.isfinite(p.grad).all()) for p in method.parameters() if p.grad is not None)


@every_method
@pytest.mark.parametrize("n_way", [2, 5, 20])
def test_any_number_of_ways_gives_normalised_finite_probabilities(
    name: str, options: dict[str, Any], n_way: int
) -> None:
    method = build(name, options, VECTORS, nn.Linear(12, 8))
    log_probs, scores, *_ = predict(method, episode(VECTORS, n_way, 1, 2))
    assert log_probs.shape == scores.shape == (2 * n_way, n_way)
    assert bool(torch.isfinite(log_probs).all() and torch.isfinite(scores).all())
    torch.testing.assert_close(log_probs.double().exp().sum(-1), torch.ones(2 * n_way).double(), rtol=0, atol=1e-5)


@every_method
def test_an_unbalanced_support_set_is_taken(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, IMAGES)
    task = episode(IMAGES, 3, [1, 4, 2])
    train(method, [task], 1)
    log_probs, scores, *_ = predict(method, task)
    assert bool(torch.isfinite(log_probs).all() and torch.isfinite(scores).all())


@every_method
def test_a_query_is_answered_as_if_it_were_the_only_one(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, IMAGES)
    task = episode(IMAGES)
    train(method, [task], 2)
    predictor = method.adapt(task.support, task.n_way, 0)
    alone = [predictor(x[None]) for x in task.query.x]
    parts = zip(*alone, strict=True)
    one_by_one = Prediction(*(None if part[0] is None else torch.cat(part) for part in parts))
    assert_close(predictor(task.query.x), one_by_one)


@every_method
def test_permuting_the_classes_permutes_the_prediction(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, VECTORS, nn.Linear(12, 8))
    task = episode(VECTORS, 4, [1, 2, 3, 2])
    permutation = torch.tensor([2, 0, 3, 1])
    renamed = Episode(LabelledSet(task.support.x, permutation[task.support.y]), task.query, task.n_way)
    if name not in SAMPLED:
        answer = predict(method, renamed)
        back = {"log_probs": answer.log_probs[:, permutation], "scores": answer.scores[:, permutation]}
        assert_close(predict(method, task), answer._replace(**back))
        return

    def probabilities(task: Episode) -> Tensor:
        return torch.stack([predict(method, task, seed).log_probs.exp() for seed in range(12)])

    ours, theirs = probabilities(task), probabilities(renamed)[..., permutation]
    error = ((ours.var(0) + theirs.var(0)) / 12).sqrt()
    assert bool(((ours.mean(0) - theirs.mean(0)).abs() < 5 * error + 1e-6).all())
    assert float(error.max()) < 0.02  # otherwise the line above would prove nothing


@every_method
def test_a_saved_state_gives_the_same_predictions_in_a_new_method(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, IMAGES)
    task = episode(IMAGES)
    train(method, [task], 2)
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    torch.manual_seed(1)
    loaded = build_method(name, IMAGES, None, options)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert equal(predict(method, task), predict(loaded, task))


@every_method
def test_training_mode_does_not_leak_into_predictions(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, IMAGES)
    task = episode(IMAGES)
    train(method, [task], 2)
    method.zero_grad()
    before = {key: value.clone() for key, value in method.state_dict().items()}
    in_training = predict(method.train(), task)
    assert method.training
    assert all(module.training for module in method.modules())
    assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in method.parameters())
    assert not in_training.log_probs.requires_grad
    assert equal(in_training, predict(method.eval(), task))
    assert not method.training


@every_method
def test_the_same_seed_gives_the_same_result(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, VECTORS, nn.Linear(12, 8))
    task = episode(VECTORS)
    losses = []
    for torch_seed in range(2):
        torch.manual_seed(torch_seed)
        np.random.seed(torch_seed)  # noqa: NPY002
        losses.append(float(method.loss(task, rng(7)).detach()))
    assert losses[0] == losses[1]
    assert equal(predict(method, task, 5), predict(method, task, 5))


@every_method
def test_the_losses_of_a_step_are_those_of_its_episodes_and_leave_the_mean_statistics(
    name: str, options: dict[str, Any]
) -> None:
    method = build(name, options, IMAGES).train()
    tasks = [episode(IMAGES, seed=seed) for seed in range(3)]
    separate, gradients, buffers = [], [], []
    for k, task in enumerate(tasks):
        with restored(method):
            loss = method.loss(task, rng(k))
            separate.append(loss.detach())
            gradients.append(torch.autograd.grad(loss, list(method.parameters())))
            buffers.append([b.clone() for b in method.buffers() if b.is_floating_point()])
    method.zero_grad()
    together = []
    for part in method.losses(tasks, [rng(k) for k in range(3)]):
        together.append(part.detach())
        part.sum().backward()
    torch.testing.assert_close(torch.cat(together), torch.stack(separate), rtol=1e-5, atol=1e-6)
    for p, *parts in zip(method.parameters(), *gradients, strict=True):
        expected = torch.stack(parts).sum(0)
        torch.testing.assert_close(p.grad, expected, rtol=1e-3, atol=1e-4 * max(1.0, float(expected.abs().max())))
    for b, *reached in zip((b for b in method.buffers() if b.is_floating_point()), *buffers, strict=True):
        torch.testing.assert_close(b, torch.stack(reached).mean(0))


@every_method
@pytest.mark.parametrize("same_shape", [True, False], ids=["one-shape", "many-shapes"])
def test_episodes_together_are_predicted_as_one_by_one(name: str, options: dict[str, Any], same_shape: bool) -> None:
    method = build(name, options, VECTORS, nn.Linear(12, 8))
    tasks = [episode(VECTORS, 3, 2 if same_shape else seed + 1, seed=seed) for seed in range(3)]
    for task, seed, together in zip(tasks, range(3), method.predict_episodes(tasks, range(3)), strict=True):
        assert_close(predict(method, task, seed), together)


@every_method
def test_kept_features_give_the_same_predictions(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, IMAGES)
    if not method.embeds_once:
        pytest.skip(f"{name} changes its backbone with the support set")
    train(method, [episode(IMAGES)], 2)
    x, y = episode(IMAGES, 4, 5).support
    class_set = ClassSet("toy", x, y, tuple("abcd"), lambda x, rng: x)
    head, embedded = on_features(method, class_set)
    assert embedded.transform is identity
    images, features = (EpisodeSampler(classes, 3, 2, 2, seed=0)[0] for classes in (class_set, embedded))
    assert_close(predict(method, images), predict(head, features), 1e-4)
    rows = torch.tensor([7, 0, 3])
    _, some = on_features(method, class_set, rows)
    torch.testing.assert_close(some.x[rows], embedded.x[rows])
    assert some.x[torch.arange(len(x))[~torch.isin(torch.arange(len(x)), rows)]].isnan().all()


@every_method
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_labels_of_any_whole_type_are_taken(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    task = episode(VECTORS, shots=1)
    method = build(name, options, VECTORS)
    expected = method.adapt(task.support, 3)(task.query.x)
    support = LabelledSet(task.support.x, task.support.y.to(dtype))
    torch.testing.assert_close(method.adapt(support, 3)(task.query.x), expected)
    together = method.predict_episodes([Episode(support, task.query, 3)] * 2, [0, 0])
    torch.testing.assert_close(together[0].log_probs, expected.log_probs)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("space", [IMAGES, VECTORS], ids=["images", "vectors"])
def test_with_the_papers_options_a_method_learns_and_predicts(name: str, space: Space) -> None:
    options = {**METHODS[name].paper_options}
    options |= {key: value for key, value in FEWER.items() if key in keyword_settings(METHODS[name])}
    method = build(name, options, space, nn.Linear(12, 8) if space is VECTORS else None)
    task = episode(space, 5)
    train(method, [task], 2)
    log_probs, scores, *_ = predict(method, task)
    assert bool(torch.isfinite(log_probs).all() and torch.isfinite(scores).all())
    torch.testing.assert_close(log_probs.double().exp().sum(-1), torch.ones(15).double(), rtol=0, atol=1e-5)


def test_prediction_leaves_a_frozen_part_of_the_network_as_it_was() -> None:
    method = build("protonet", {}, IMAGES)
    frozen = next(m for m in method.modules() if isinstance(m, nn.BatchNorm2d)).eval()
    method.adapt(episode(IMAGES).support, 3)
    assert not frozen.training
    assert method.training
