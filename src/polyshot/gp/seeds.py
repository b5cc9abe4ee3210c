"""Random number generators: numpy's, because the Pólya-Gamma sampler draws from them."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from polyshot.errors import InputError
from polyshot.gp.shapes import Generators

Seed = int | np.random.Generator | None
Seeds = Seed | Sequence[int | np.random.Generator]


def as_generator(seed: Seed) -> np.random.Generator:
    """Turn a seed into a generator.

    Parameters
    ----------
    seed : int, Generator or None
        A generator is returned as it is and advances with every draw. None takes fresh entropy.
    """
    try:
        return np.random.default_rng(seed)
    except ValueError as error:
        raise InputError(f"a seed is an integer >= 0 or a generator, not {seed!r}") from error


def as_generators(seeds: Seeds, n_tasks: int) -> list[np.random.Generator]:
    """Make one generator per task, so that a task's draws do not depend on the other tasks of the batch.

    Parameters
    ----------
    seeds : seed or sequence of seeds
        A sequence gives each task its own seed. A single seed is spawned into independent children; for a batch of one
        task it is used directly.
    n_tasks : int
        The number of tasks in the batch.
    """
    if isinstance(seeds, Sequence):
        if len(seeds) != n_tasks:
            raise InputError(f"{len(seeds)} seeds for a batch of {n_tasks} tasks; give one seed, or one per task")
        return [as_generator(seed) for seed in seeds]
    generator = as_generator(seeds)
    return [generator] if n_tasks == 1 else list(generator.spawn(n_tasks))


def standard_normal(generators: Generators, shape: Sequence[int], like: Tensor) -> Float[Tensor, "tasks ..."]:
    """Draw standard normal numbers [tasks, *shape] in float64 on `like`'s device, each task from its generator."""
    draws = torch.empty(len(generators), *shape, dtype=torch.float64)
    for generator, out in zip(generators, draws.numpy(), strict=True):
        generator.standard_normal(out=out)
    return draws.to(like.device)
