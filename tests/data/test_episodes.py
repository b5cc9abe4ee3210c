import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyshot.data import ClassSet, EpisodeSampler
from polyshot.data.transforms import NaturalTrain, scale_characters
from polyshot.task import OUTSIDE


def test_an_episode_has_the_shapes_and_labels_that_were_asked_for(toy: ClassSet) -> None:
    support, query, n_way = EpisodeSampler(toy, 5, 3, 4, seed=0)[0]
    assert n_way == 5
    assert support.x.shape == (15, 1, 4, 4)
    assert query.x.shape == (20, 1, 4, 4)
    assert support.y.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert query.y.tolist() == np.repeat(range(5), 4).tolist()
    assert support.y.dtype == query.y.dtype == torch.int64
    assert support.x.dtype == torch.float32


@given(k=st.integers(0, 10**9), seed=st.integers(0, 2**40))
def test_support_and_query_share_no_example_and_are_of_the_drawn_classes(k: int, seed: int) -> None:
    y = torch.from_numpy(np.repeat(np.arange(7), [9, 12, 8, 8, 30, 8, 10]))
    toy = ClassSet("toy", torch.zeros(len(y), 1), y, tuple("abcdefg"), lambda x, rng: x)
    rows = EpisodeSampler(toy, 3, [1, 5, 2], 3, seed, n_extra_way=2).indices(k)
    every = torch.cat([rows.support, rows.query]).tolist()
    assert len(set(every)) == len(every)
    assert len(set(rows.classes.tolist())) == 5
    assert toy.y[rows.support].tolist() == rows.classes[rows.support_y].tolist()
    expected = rows.classes.repeat_interleave(3)
    assert toy.y[rows.query].tolist() == expected.tolist()


def test_episodes_are_gathered_from_their_indices(toy: ClassSet) -> None:
    sampler = EpisodeSampler(toy, 5, 2, 3, seed=3, n_extra_way=1)
    rows, episode = sampler.indices(11), sampler[11]
    np.testing.assert_allclose(episode.support.x[:, 0, 0, 0] * 255, rows.support.float(), atol=1e-4)
    np.testing.assert_allclose(episode.query.x[:, 0, 0, 0] * 255, rows.query.float(), atol=1e-4)


def test_embedded_examples_give_the_same_episodes(toy: ClassSet) -> None:
    features = toy.x[:, 0, 0, :1].float()
    images, embedded = (EpisodeSampler(s, 5, 2, 3, seed=1)[8] for s in (toy, toy.embedded(features)))
    np.testing.assert_allclose(images.query.x[:, 0, 0, :1] * 255, embedded.query.x, atol=1e-4)


def test_unbalanced_shots_are_one_number_a_class(toy: ClassSet) -> None:
    episode = EpisodeSampler(toy, 3, [1, 4, 2], 2, seed=0)[0]
    assert episode.support.y.tolist() == [0, 1, 1, 1, 1, 2, 2]


def test_extra_classes_are_in_the_query_alone_and_labelled_outside(toy: ClassSet) -> None:
    sampler = EpisodeSampler(toy, 3, 2, 4, seed=0, n_extra_way=2)
    rows = sampler.indices(5)
    assert rows.query_y.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [OUTSIDE] * 8
    outside = set(toy.y[rows.query[rows.query_y == OUTSIDE]].tolist())
    assert outside == set(rows.classes[3:].tolist())
    assert not outside & set(toy.y[rows.support].tolist())


def test_episode_k_is_the_same_whatever_was_drawn_before(toy: ClassSet) -> None:
    one, two = EpisodeSampler(toy, 5, 1, 2, seed=7), EpisodeSampler(toy, 5, 1, 2, seed=7)
    for k in range(5):
        one[k]
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    for ours, theirs in zip(one.indices(123), two.indices(123), strict=True):
        assert ours.tolist() == theirs.tolist()


def test_other_numbers_and_other_seeds_give_other_episodes(toy: ClassSet) -> None:
    drawn = {
        tuple(EpisodeSampler(toy, 5, 2, 3, seed).indices(k).support.tolist()) for seed in range(10) for k in range(20)
    }
    assert len(drawn) == 200


PROGRAM = """
import numpy as np, torch, hashlib
from polyshot.data import ClassSet, EpisodeSampler
from polyshot.data.transforms import NaturalTrain
torch.set_num_threads({threads})
x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (60, 3, 20, 20), dtype=np.uint8))
toy = ClassSet("toy", x, torch.arange(6).repeat_interleave(10), tuple("abcdef"), NaturalTrain(16))
sampler = EpisodeSampler(toy, 5, 2, 3, seed=5)
rows = [part.tolist() for part in sampler.indices(99)]
print(rows, float(sampler[99].query.x.double().sum()))
"""


def test_an_episode_is_the_same_in_every_process() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM.format(threads=threads)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(threads)},
        ).stdout
        for threads in (1, 2)
    }
    assert len(answers) == 1


def test_every_class_and_example_is_drawn_equally_often(toy: ClassSet) -> None:
    sampler = EpisodeSampler(toy, 4, 2, 3, seed=0)
    n = 4000
    classes = np.bincount(np.concatenate([sampler.indices(k).classes.numpy() for k in range(n)]))
    # each class is in half the episodes: 2000 +- 5 deviations of sqrt(n / 4)
    assert (abs(classes - n / 2) < 5 * np.sqrt(n / 4)).all()
    support = np.bincount(np.concatenate([sampler.indices(k).support.numpy() for k in range(n)]))
    expected = (n / 2) * 2 / toy.class_sizes[toy.y.numpy()]
    assert (abs(support - expected) < 5 * np.sqrt(expected)).all()


def test_a_transform_may_be_given_and_is_seeded_by_the_episode() -> None:
    x = torch.randint(0, 256, (40, 3, 20, 20), dtype=torch.uint8)
    toy = ClassSet("toy", x, torch.arange(4).repeat_interleave(10), tuple("abcd"), scale_characters)
    sampler = EpisodeSampler(toy, 3, 2, 3, seed=5, transform=NaturalTrain(16))
    assert sampler[4].support.x.shape == (6, 3, 16, 16)
    assert torch.equal(sampler[4].query.x, sampler[4].query.x)


def test_rotation_makes_four_classes_of_one(toy: ClassSet) -> None:
    x = torch.arange(16, dtype=torch.uint8).reshape(1, 1, 4, 4)
    one = ClassSet("one", x, torch.zeros(1, dtype=torch.int64), ("a",), scale_characters).rotated()
    assert one.class_names == ("a@0", "a@90", "a@180", "a@270")
    assert one.y.tolist() == [0, 1, 2, 3]
    assert torch.equal(one.x[2], x[0].flip(1, 2))
    assert EpisodeSampler(toy.rotated(), 20, 5, 5, seed=0)[0].n_way == 20


@pytest.mark.parametrize("k", [-1, -100])
def test_episodes_are_numbered_from_zero(k: int, toy: ClassSet) -> None:
    with pytest.raises(ValueError, match="numbered from 0"):
        EpisodeSampler(toy, 5, 1, 1, seed=0)[k]
