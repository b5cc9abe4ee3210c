"""Small tasks that every method can learn: patterns of classes 0, 1, ... in noise, the same classes in each episode."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from polyshot.task import Episode, LabelledSet, Space

IMAGES = Space((1, 16, 16), 20)
VECTORS = Space((12,), 20)


def examples(space: Space, y: Tensor, rng: np.random.Generator) -> LabelledSet:
    """Images are blocks of 4x4 pixels; of a vector's entries, only the first half tells the class."""
    patterns = np.random.default_rng(0)
    if space.kind == "embeddings":
        d = space.shape[0]
        centres = np.pad(patterns.normal(size=(space.n_classes, d // 2)), ((0, 0), (0, d - d // 2)))
        x = centres[y] + rng.normal(size=(len(y), d)) * np.where(np.arange(d) < d // 2, 0.5, 2.0)
    else:
        blocks = patterns.uniform(size=(space.n_classes, 1, 4, 4))
        x = blocks[y].repeat(4, axis=2).repeat(4, axis=3) + 0.3 * rng.normal(size=(len(y), *space.shape))
    return LabelledSet(torch.from_numpy(x).float(), y)


def episode(space: Space, n_way: int = 3, shots: int | Sequence[int] = 2, n_query: int = 3, seed: int = 0) -> Episode:
    """One task, sorted by class."""
    rng = np.random.default_rng([1, seed])
    support = torch.arange(n_way).repeat_interleave(torch.tensor(shots))
    query = torch.arange(n_way).repeat_interleave(n_query)
    return Episode(examples(space, support, rng), examples(space, query, rng), n_way)
