"""What every method of the registry must do; a new line in METHODS is tested here by itself."""

import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy_tasks import IMAGES, VECTORS, episode

from polyshot.data import ClassSet, Episode, EpisodeSampler, LabelledSet
from polyshot.data.transforms import identity
from polyshot.errors import InputError
from polyshot.gp import Prediction
from polyshot.methods import METHODS, FewShotMethod, Space, build_method
from polyshot.methods.embedding import on_features
from polyshot.methods.options import method_options

# The Gibbs chains and Monte Carlo draws of these go with the classes' numbers: permuted, they are equal in law only.
SAMPLED = {"dkt", "logistic-softmax-gp", "ove-gp"}
# So that the tests are quick, for the methods that have such an option; none changes what is tested.
FEWER = {"n_passes": 10, "test_steps": 4, "n_particles": 4, "n_samples": 2}


def rows() -> Iterator[Any]:
    """Every method, once for each of its objectives."""
    for name, method in METHODS.items():
        known = method_options(method)
        fewer = {option: value for option, value in FEWER.items() if option in known}
        for choice in known["objective"].choices if "objective" in known else ("",):
            options = {**fewer, "objective": choice} if choice else fewer
            yield pytest.param(name, options, id=f"{name}-{choice}".rstrip("-"))


every_method = pytest.mark.parametrize(("name", "options"), list(rows()))


def build(name: str, options: dict[str, Any], space: Space, backbone: nn.Module | None = None) -> FewShotMethod:
    torch.manual_seed(0)
    return build_method(name, space, backbone, options)


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
    """Afterwards the state is what it was."""
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
    for seed in range(20):  # a loss may be random in what it teaches
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
    log_probs, scores, _ = predict(method, episode(VECTORS, n_way, 1, 2))
    assert log_probs.shape == scores.shape == (2 * n_way, n_way)
    assert bool(torch.isfinite(log_probs).all() and torch.isfinite(scores).all())
    torch.testing.assert_close(log_probs.double().exp().sum(-1), torch.ones(2 * n_way).double(), rtol=0, atol=1e-5)


@every_method
def test_an_unbalanced_support_set_is_taken(name: str, options: dict[str, Any]) -> None:
    method = build(name, options, IMAGES)
    task = episode(IMAGES, 3, [1, 4, 2])
    train(method, [task], 1)
    log_probs, scores, _ = predict(method, task)
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
        log_probs, scores, variance = predict(method, renamed)
        assert_close(predict(method, task), Prediction(log_probs[:, permutation], scores[:, permutation], variance))
        return

    def probabilities(task: Episode) -> Tensor:
        return torch.stack([predict(method, task, seed).log_probs.exp() for seed in range(12)])

    ours, theirs = probabilities(task), probabilities(renamed)[..., permutation]
    error = ((ours.var(0) + theirs.var(0)) / 12).sqrt()
    assert bool(((ours.mean(0) - theirs.mean(0)).abs() < 5 * error + 1e-6).all())
    assert float(error.max()) < 0.02  # else the line above says nothing


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


def broken_supports() -> Iterator[Any]:
    (x, y), _, _ = episode(VECTORS)
    yield pytest.param(x[:0], y[:0], "N > 0", id="empty")
    yield pytest.param(x, y[:-1], "labels y", id="a label short")
    yield pytest.param(x, torch.where(y == 1, 2, y), "each class", id="a class missing")
    yield pytest.param(x, y + 1, "each class", id="labels from one")
    yield pytest.param(x, y.float(), "each class", id="float labels")
    yield pytest.param(torch.where(x == x[0, 0], torch.nan, x), y, "NaN", id="NaN")


@every_method
@pytest.mark.parametrize(("x", "y", "message"), list(broken_supports()))
def test_a_broken_support_set_is_an_input_error(
    name: str, options: dict[str, Any], x: Tensor, y: Tensor, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build(name, options, VECTORS).adapt(LabelledSet(x, y), 3)


@every_method
def test_broken_queries_are_input_errors(name: str, options: dict[str, Any]) -> None:
    task = episode(VECTORS)
    predictor = build(name, options, VECTORS).adapt(task.support, task.n_way)
    for x, message in (
        (task.query.x[:, :5], "queries must be"),
        (task.query.x[0], "queries must be"),
        (task.query.x / 0, "NaN"),
        (task.query.x[:0], "no query"),
    ):
        with pytest.raises(InputError, match=message):
            predictor(x)


@every_method
def test_an_unknown_option_is_an_input_error_that_names_the_known_ones(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{name.replace('+', '.')} has no option colour"):
        build_method(name, VECTORS, None, {**options, "colour": "red"})


def test_constructors_refuse_a_choice_that_there_is_not() -> None:
    code = """
from polyshot.errors import InputError
from polyshot.methods import METHODS, Space
from polyshot.methods.options import method_options

for name, method in METHODS.items():
    for key in [key for key, option in method_options(method).items() if option.choices]:
        try:
            method(Space((12,), 20), **{key: "neither"})
        except InputError as error:
            print(key, "neither" in str(error))
        else:
            print(name, key, "taken")
"""  # in a process without the type checks of the test run
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = set(done.stdout.splitlines())
    choices = {key for method in METHODS.values() for key, option in method_options(method).items() if option.choices}
    assert said == {f"{key} True" for key in choices}


def test_prediction_leaves_a_frozen_part_of_the_network_as_it_was() -> None:
    method = build("protonet", {}, IMAGES)
    frozen = next(m for m in method.modules() if isinstance(m, nn.BatchNorm2d)).eval()
    method.adapt(episode(IMAGES).support, 3)
    assert not frozen.training
    assert method.training


def test_an_unknown_method_is_an_input_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no method 'protnet'; there are feature-transfer, .*protonet"):
        build_method("protnet", VECTORS)
