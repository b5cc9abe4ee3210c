"""Random tasks for the tests: a kernel matrix of support and query, labels, sites."""

from typing import NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyshot.gp import Sites

N_QUERY = 3


class Task(NamedTuple):
    """Features S with K = S S^T; omega is zero at the example's own class (for `sites`, kappa = 1/2)."""

    root: np.ndarray
    root_star: np.ndarray
    y: np.ndarray
    omega: np.ndarray
    mean: np.ndarray
    n_way: int

    @property
    def K(self) -> np.ndarray:
        return self.root @ self.root.T

    @property
    def K_star(self) -> np.ndarray:
        return self.root_star @ self.root.T

    @property
    def k_star_star(self) -> np.ndarray:
        return (self.root_star**2).sum(-1)

    @property
    def kappa(self) -> np.ndarray:
        return np.where(self.omega > 0, 0.5, 0.0)

    @property
    def sites(self) -> Sites:
        """One chain."""
        return Sites(tensor(self.omega)[None], tensor(self.kappa)[None])

    @property
    def labels(self) -> Tensor:
        return torch.from_numpy(self.y)


def tensor(x) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def make_task(n=5, n_way=3, log_scale=0.0, kind="full", y=None, seed=0) -> Task:
    """`kind`: "full" rank, "rank one", or "duplicates" (every second example repeats the one before it)."""
    rng = np.random.default_rng(seed)
    width = 1 if kind == "rank one" else n + N_QUERY + 2
    features = rng.standard_normal((n + N_QUERY, width)) / np.sqrt(width) * np.exp(log_scale / 2)
    if kind == "duplicates":
        features[1:n:2] = features[0 : n - 1 : 2]
    y = rng.integers(n_way, size=n) if y is None else np.asarray(y)
    omega = np.exp(rng.uniform(np.log(1e-3), 0, (n, n_way))) * (y[:, None] != np.arange(n_way))
    return Task(features[:n], features[n:], y, omega, rng.standard_normal((n, n_way)), n_way)


@st.composite
def tasks(draw, log_scales=(-5.0, 8.0)) -> Task:
    n, n_way = draw(st.integers(1, 12)), draw(st.integers(2, 6))
    return make_task(
        n,
        n_way,
        draw(st.floats(*log_scales)),
        draw(st.sampled_from(["full", "rank one", "duplicates"])),
        draw(st.lists(st.integers(0, n_way - 1), min_size=n, max_size=n)),
        draw(st.integers(0, 2**32 - 1)),
    )
