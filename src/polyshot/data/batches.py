"""Batches of all classes, for methods that train a plain classifier; batch k is a pure function of (seed, k)."""

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from polyshot.data.dataset import ClassSet
from polyshot.data.transforms import Transform
from polyshot.errors import DataError, InputError
from polyshot.task import Episode, LabelledSet


class BatchSampler:
    """Draws batches: `sampler[k]` is batch k, an Episode of all classes with its examples as support and no query.

    An epoch is `batches_per_epoch` (also `len`) batches of equal size from one permutation of the examples. The last
    few examples, too few for a batch, are left out of this epoch. There is no last epoch.

    Parameters
    ----------
    class_set : ClassSet
        The classes to draw from.
    batch_size : int
        Examples per batch.
    seed : int
        Seed of the permutations and of the transform.
    transform : callable, optional
        The class set's own unless given.
    """

    def __init__(
        self, class_set: ClassSet, batch_size: int = 16, seed: int = 0, transform: Transform | None = None
    ) -> None:
        if batch_size < 2 or seed < 0:
            raise InputError(f"batches need batch_size >= 2 and seed >= 0; got {batch_size} and {seed}")
        if len(class_set.x) < batch_size:
            raise DataError(f"{class_set.name}: has {len(class_set.x)} examples, fewer than a batch of {batch_size}")
        self.class_set = class_set
        self.batch_size = batch_size
        self.seed = seed
        self.transform = transform or class_set.transform
        self.batches_per_epoch = len(class_set.x) // batch_size
        self._epoch = -1
        self._order = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self.batches_per_epoch

    def indices(self, k: int) -> Int64[Tensor, "n"]:
        """Return batch k as rows of the class set."""
        if k < 0:
            raise InputError(f"batches are numbered from 0; got {k}")
        epoch, place = divmod(k, self.batches_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._rng(0, epoch).permutation(len(self.class_set.x))
        return torch.from_numpy(self._order[place * self.batch_size : (place + 1) * self.batch_size])

    def __getitem__(self, k: int) -> Episode:
        rows = self.indices(k)
        x = self.transform(self.class_set.x[rows], self._rng(1, k))
        return Episode(
            LabelledSet(x, self.class_set.y[rows]),
            LabelledSet(x[:0], self.class_set.y[:0]),
            len(self.class_set.class_names),
        )

    def _rng(self, stream: int, k: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, stream, k))))
