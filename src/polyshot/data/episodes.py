"""Episodes: few-shot tasks drawn from a class set; episode k is a pure function of (seed, k)."""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int64
from torch import Tensor

from polyshot.data.dataset import ClassSet
from polyshot.data.transforms import Transform
from polyshot.errors import DataError, InputError
from polyshot.task import OUTSIDE, Episode, LabelledSet


class EpisodeIndices(NamedTuple):
    """An episode as rows of its class set; `classes` [n_way + n_extra_way] are the classes that were drawn."""

    support: Int64[Tensor, "N"]
    support_y: Int64[Tensor, "N"]
    query: Int64[Tensor, "Q"]
    query_y: Int64[Tensor, "Q"]
    classes: Int64[Tensor, "C"]


class EpisodeSampler:
    """Draws episodes: `sampler[k]` is episode k, the same in any process and whatever was drawn before.

    Support and query are sorted by class, extra classes last, so that every episode of a sampler has the same shapes
    and the same labels.

    Parameters
    ----------
    class_set : ClassSet
        The classes to draw from.
    n_way : int
        Classes per episode.
    n_shot : int or sequence of int
        Support examples per class; n_way numbers give unbalanced support sets (which class gets which is random).
    n_query : int
        Queries per class.
    seed : int
        Seed of the episodes.
    n_extra_way : int
        Further classes that are in the query set only, n_query each, labelled OUTSIDE.
    transform : callable, optional
        The class set's own unless given.

    Examples
    --------
    >>> from polyshot.data import EpisodeSampler, load
    >>> sampler = EpisodeSampler(load("glyphs", "test"), n_way=5, n_shot=1, n_query=15, seed=0)
    >>> sampler[0].query.x.shape
    torch.Size([75, 1, 28, 28])
    """

    def __init__(
        self,
        class_set: ClassSet,
        n_way: int,
        n_shot: int | Sequence[int],
        n_query: int,
        seed: int,
        n_extra_way: int = 0,
        transform: Transform | None = None,
    ) -> None:
        shots = [n_shot] * n_way if isinstance(n_shot, int) else list(n_shot)
        if n_way < 2 or n_query < 1 or n_extra_way < 0 or seed < 0 or min(shots, default=0) < 1:
            raise InputError(
                "an episode needs n_way >= 2, n_shot >= 1, n_query >= 1, n_extra_way >= 0 and seed >= 0; got "
                f"n_way={n_way}, n_shot={n_shot}, n_query={n_query}, n_extra_way={n_extra_way}, seed={seed}"
            )
        if len(shots) != n_way:
            raise InputError(f"{len(shots)} numbers of shots for {n_way} classes; give one number, or one per class")
        _check_large_enough(class_set, n_way + n_extra_way, max(shots), n_query)
        self.class_set = class_set
        self.n_way = n_way
        self.seed = seed
        self.transform = transform or class_set.transform
        self._shots = np.array(shots + [0] * n_extra_way)
        self._n_query = n_query
        self._support_y = torch.from_numpy(np.repeat(np.arange(n_way), shots))
        labels = [*range(n_way), *[OUTSIDE] * n_extra_way]
        self._query_y = torch.from_numpy(np.repeat(labels, n_query))

    def indices(self, k: int) -> EpisodeIndices:
        """Return episode k as rows of the class set."""
        return self._draw(self._rng(k))

    def __getitem__(self, k: int) -> Episode:
        rng = self._rng(k)
        rows = self._draw(rng)
        n_support = len(rows.support)
        x = self.transform(self.class_set.x[torch.cat([rows.support, rows.query])], rng)
        return Episode(LabelledSet(x[:n_support], rows.support_y), LabelledSet(x[n_support:], rows.query_y), self.n_way)

    def over(self, class_set: ClassSet) -> "EpisodeSampler":
        """Return a sampler of the same episodes over another form of the same examples, such as their features."""
        if not np.array_equal(class_set.class_sizes, self.class_set.class_sizes):
            raise InputError(
                f"{class_set.name} is not {self.class_set.name} in another form: their classes differ in size"
            )
        other = copy.copy(self)
        other.class_set, other.transform = class_set, class_set.transform
        return other

    def _rng(self, k: int) -> np.random.Generator:
        if k < 0:
            raise InputError(f"episodes are numbered from 0; got {k}")
        return np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, k))))

    def _draw(self, rng: np.random.Generator) -> EpisodeIndices:
        sizes, starts = self.class_set.class_sizes, self.class_set.class_starts
        classes = rng.choice(len(sizes), len(self._shots), replace=False)
        support: list[npt.NDArray[np.int64]] = []
        query: list[npt.NDArray[np.int64]] = []
        for c, shot in zip(classes, self._shots, strict=True):
            rows = starts[c] + rng.choice(sizes[c], shot + self._n_query, replace=False)
            support.append(rows[:shot])
            query.append(rows[shot:])
        return EpisodeIndices(
            torch.from_numpy(np.concatenate(support)),
            self._support_y,
            torch.from_numpy(np.concatenate(query)),
            self._query_y,
            torch.from_numpy(classes),
        )


def _check_large_enough(class_set: ClassSet, n_classes: int, n_shot: int, n_query: int) -> None:
    names, sizes = class_set.class_names, class_set.class_sizes
    if len(names) < n_classes:
        raise DataError(
            f"{class_set.name}: has {len(names)} classes ({_some(names)}), but an episode needs {n_classes}; "
            "choose fewer ways, or add classes"
        )
    small = [f"{name!r} ({size})" for name, size in zip(names, sizes, strict=True) if size < n_shot + n_query]
    if small:
        raise DataError(
            f"{class_set.name}: {len(small)} of {len(names)} classes have fewer examples than {n_shot} shots and "
            f"{n_query} queries need: {_some(small)}; the smallest class has {sizes.min()}. Choose fewer queries, "
            "add examples, or leave these classes out"
        )


def _some(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
