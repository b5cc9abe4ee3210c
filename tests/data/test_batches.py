import numpy as np
import pytest
import torch
from torch import Tensor

from polyshot.data import BatchSampler, ClassSet
from polyshot.errors import DataError, InputError


def test_a_batch_is_an_episode_of_all_classes_without_queries(toy: ClassSet) -> None:
    support, query, n_way = BatchSampler(toy, 16, seed=0)[3]
    assert n_way == 8
    assert support.x.shape == (16, 1, 4, 4)
    assert support.x.dtype == torch.float32
    rows = (support.x[:, 0, 0, 0] * 255).round().long()
    assert support.y.tolist() == toy.y[rows].tolist()
    assert support.y.dtype == query.y.dtype == torch.int64
    assert query.x.shape == (0, 1, 4, 4)
    assert query.y.shape == (0,)


def test_an_epoch_takes_no_example_twice_and_leaves_out_less_than_a_batch(toy: ClassSet) -> None:
    sampler = BatchSampler(toy, 16, seed=1)
    assert len(sampler) == sampler.batches_per_epoch == len(toy.x) // 16
    epochs = [
        torch.cat([sampler.indices(epoch * len(sampler) + k) for k in range(len(sampler))]).tolist()
        for epoch in range(3)
    ]
    assert all(len(set(rows)) == len(sampler) * 16 for rows in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert sorted(epochs[0]) != epochs[0]


def test_all_examples_are_drawn_equally_often(toy: ClassSet) -> None:
    sampler = BatchSampler(toy, 16, seed=2)
    n_epochs = 400
    drawn = torch.cat([sampler.indices(k) for k in range(n_epochs * len(sampler))])
    counts = np.bincount(drawn.numpy(), minlength=len(toy.x))
    share = len(sampler) * 16 / len(toy.x)
    assert (abs(counts - n_epochs * share) <= 5 * np.sqrt(n_epochs * share * (1 - share))).all()


def test_batch_k_is_the_same_whatever_was_drawn_before(toy: ClassSet) -> None:
    one, two = BatchSampler(toy, 4, seed=7), BatchSampler(toy, 4, seed=7)
    for k in (0, 100, 3, 57):
        one[k]
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    assert torch.equal(one[30].support.x, two[30].support.x)
    assert torch.equal(one[30].support.y, two[30].support.y)
    assert not torch.equal(one.indices(30), BatchSampler(toy, 4, seed=8).indices(30))


def test_the_transform_draws_from_the_batch_of_its_own(toy: ClassSet) -> None:
    def noise(x: Tensor, rng: np.random.Generator) -> Tensor:
        return torch.from_numpy(rng.normal(size=(len(x), 2)))

    sampler = BatchSampler(toy, 4, seed=0, transform=noise)
    first, second = sampler[0].support.x, sampler[1].support.x
    assert not torch.equal(first, second)
    assert torch.equal(first, sampler[0].support.x)


def test_what_cannot_be_drawn_is_an_error_that_says_why(toy: ClassSet) -> None:
    with pytest.raises(InputError, match="numbered from 0"):
        BatchSampler(toy, 16, seed=0)[-1]
    with pytest.raises(InputError, match="batch_size >= 2"):
        BatchSampler(toy, 1, seed=0)
    with pytest.raises(InputError, match="seed >= 0"):
        BatchSampler(toy, 16, seed=-1)
    with pytest.raises(DataError, match="fewer than a batch of 1000"):
        BatchSampler(toy, 1000, seed=0)
