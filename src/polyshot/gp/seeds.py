"""Where randomness comes from: numpy generators, because the Pólya-Gamma sampler draws from them."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.errors import InputError

Seed = int | np.random.Generator | None
Seeds = Seed | Sequence[int | np.random.Generator]


def as_generator(seed: Seed) -> np.random.Generator:
    """Turn a seed into a generator; a generator is passed through and advances, None is fresh entropy."""
    try:
        return np.random.default_rng(seed)
    except ValueError as error:
        raise InputError(f"a seed is an integer >= 0 or a generator, not {seed!r}") from error


def as_generators(seeds: Seeds, n_tasks: int) -> list[np.random.Generator]:
    """One generator a task of a batch, so that a task's draws do not depend on the tasks around it.

    A sequence gives each task its own seed; a single seed is spawned into independent children, except for
    a single task, which uses it as it is.
    """
    if isinstance(seeds, Sequence):
        if len(seeds) != n_tasks:
            raise InputError(f"{len(seeds)} seeds for a batch of {n_tasks} tasks; give one a task, or one in all")
        return [as_generator(seed) for seed in seeds]
    generator = as_generator(seeds)
    return [generator] if n_tasks == 1 else list(generator.spawn(n_tasks))


def standard_normal(
    generators: Sequence[np.random.Generator], shape: Sequence[int], like: Tensor
) -> Float[Tensor, "tasks ..."]:
    """Standard normal draws [tasks, *shape] in float64 on `like`'s device, task by task from its generator."""
    draws = torch.empty(len(generators), *shape, dtype=torch.float64)
    for generator, out in zip(generators, draws.numpy(), strict=True):
        generator.standard_normal(out=out)
    return draws.to(like.device)
