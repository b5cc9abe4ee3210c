import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.parametrizations import weight_norm
from toy_tasks import VECTORS, episode

from polyshot.errors import InputError
from polyshot.methods.baseline_plus_plus import BaselinePlusPlus, CosineClassifier
from polyshot.methods.feature_transfer import FeatureTransfer
from polyshot.task import Episode, LabelledSet, Space


def by_torch(layer: nn.Module, x: Tensor, y: Tensor, n_passes: int, rng: np.random.Generator) -> None:
    """The protocol's training of the new layer, by autograd and torch.optim."""
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, dampening=0.9, weight_decay=1e-3)
    for _ in range(n_passes):
        order = rng.permutation(len(x))
        for start in range(0, len(x), 4):
            rows = order[start : start + 4]
            optimizer.zero_grad()
            cross_entropy(layer(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@pytest.fixture
def task() -> LabelledSet:
    """Ten examples of three classes, mixed: two full batches and half of one."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(10, 6)))
    return LabelledSet(x, torch.tensor([2, 0, 1, 1, 2, 0, 1, 1, 2, 1]))


@pytest.mark.parametrize("n_passes", [1, 2, 40])
def test_the_linear_layer_is_the_one_of_autograd_and_torch_optim(n_passes: int, task: LabelledSet) -> None:
    x, y = task
    layer = nn.Linear(6, 3, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    by_torch(layer, x, y, n_passes, np.random.default_rng(5))
    classify = FeatureTransfer(VECTORS, n_passes=n_passes).fit(x, y, 3, np.random.default_rng(5))
    torch.testing.assert_close(classify(x), layer(x).detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_passes", [1, 2, 40])
def test_the_cosine_layer_is_the_one_of_weight_norm_and_torch_optim(n_passes: int, task: LabelledSet) -> None:
    x, y = task
    rng = np.random.default_rng(5)
    start = rng.uniform(-1, 1, (3, 6)) / np.sqrt(6)
    layer = nn.Linear(6, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(start[[1, 2, 0]]))  # y shows class 2 first, then 0, then 1
    weight_norm(layer)
    by_torch(_Scaled(layer), normalize(x), y, n_passes, rng)
    classify = BaselinePlusPlus(VECTORS, n_passes=n_passes).fit(x, y, 3, np.random.default_rng(5))
    torch.testing.assert_close(classify(x), 2 * layer(normalize(x)), rtol=0, atol=1e-12)


class _Scaled(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = 2 * self.layer(x)
        return scores


@pytest.mark.parametrize("method", [FeatureTransfer, BaselinePlusPlus])
def test_the_new_layer_separates_clear_classes(method: type[FeatureTransfer]) -> None:
    centres = 3 * torch.eye(5, 12)
    x = centres.repeat_interleave(5, 0) + 0.2 * torch.randn(25, 12, generator=torch.Generator().manual_seed(0))
    predictor = method(VECTORS).adapt(LabelledSet(x, torch.arange(5).repeat_interleave(5)), 5)
    log_probs, scores, *_ = predictor(centres)
    assert log_probs.argmax(-1).tolist() == [0, 1, 2, 3, 4]
    torch.testing.assert_close(log_probs, scores.log_softmax(-1))


def test_the_cosine_layer_ignores_the_lengths_of_features_and_directions() -> None:
    x, start = torch.randn(4, 6), torch.randn(3, 6)
    layer = CosineClassifier(start)
    expected = layer(x)
    cosines = torch.cosine_similarity(x[:, None], start, dim=-1)
    torch.testing.assert_close(expected, 2 * start.norm(dim=-1) * cosines)
    torch.testing.assert_close(layer(100 * x), expected)
    with torch.no_grad():
        layer.direction *= 7
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(("n_classes", "scale"), [(200, 2.0), (201, 10.0)])
def test_the_cosine_layer_has_a_larger_scale_for_many_classes(n_classes: int, scale: float) -> None:
    classifier = BaselinePlusPlus(Space((6,), n_classes)).classifier
    assert isinstance(classifier, CosineClassifier)
    assert classifier.scale == scale


@pytest.mark.parametrize("method", [FeatureTransfer, BaselinePlusPlus])
def test_the_loss_is_the_cross_entropy_of_support_and_query_together(method: type[FeatureTransfer]) -> None:
    built = method(VECTORS)
    support, query, n_way = episode(VECTORS, 3, [1, 2, 3])
    x, y = torch.cat([support.x, query.x]), torch.cat([support.y, query.y])
    expected = -built.classifier(x).log_softmax(-1)[range(len(y)), y].mean()
    rng = np.random.default_rng(0)
    torch.testing.assert_close(built.loss(Episode(support, query, n_way), rng), expected)
    batch = Episode(LabelledSet(x, y), LabelledSet(x[:0], y[:0]), VECTORS.n_classes)
    torch.testing.assert_close(built.loss(batch, rng), expected)


def test_more_classes_than_the_classifier_has_are_an_input_error() -> None:
    with pytest.raises(InputError, match="was built for 3 classes, the batch has 4"):
        FeatureTransfer(Space((12,), 3)).loss(episode(VECTORS, 4), np.random.default_rng(0))


@pytest.mark.parametrize("option", ["n_passes", "inner_rate"])
def test_the_options_must_be_positive(option: str) -> None:
    with pytest.raises(InputError, match=f"Feature Transfer: {option} must be above 0, not 0"):
        FeatureTransfer(VECTORS, **{option: 0 if option == "n_passes" else 0.0})
