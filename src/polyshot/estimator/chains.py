"""Gibbs chains that start at expectation propagation's posterior and stop when they have mixed."""

from itertools import islice

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp import GibbsState, OneVsEachGP, Prior, Sites, gibbs_states, psd_root, split_r_hat

_STEPS_BETWEEN_LOOKS = 250
_MIXED = 1.03
_BURN_IN = 5  # the first fifth of the steps is left out; the start is close to the posterior, if propagation converged
_DRAWS = 50  # per chain at most, and 200 for fewer than four chains


def thinning(n_steps: int) -> int:
    """Every how many steps one is kept: neighbours are correlated (ten are worth about one), unless there are few."""
    return max(1, min(5, n_steps // 20))


def most_draws(n_chains: int) -> int:
    """The largest number of draws that are kept of all chains."""
    return _DRAWS * max(4, n_chains)


def run_chains(
    model: OneVsEachGP,
    K: Float[Tensor, "n n"],
    y: Int[Tensor, "n"],
    start: Sites,
    n_chains: int,
    n_steps: int,
    generator: np.random.Generator,
) -> tuple[Sites, float]:
    """Draws of the sites from M chains, and the largest split R-hat of the logits; `start` has the sites of one chain.

    There are at most `n_steps` steps. R-hat is computed every 250 steps, and the chains stop once it is below 1.03.
    The first fifth of the steps is left out each time, and of the others every chain gives equally many draws.
    """
    prior = Prior(K, psd_root(K), torch.zeros(1, *start.omega.shape[1:], dtype=K.dtype))
    first = Sites(*(x.expand(n_chains, *x.shape[1:]) for x in start))
    states = gibbs_states(model, prior, y, first, [generator])
    thin = thinning(n_steps)
    kept: list[GibbsState] = []
    used: list[GibbsState] = []
    r_hat = float("nan")
    for step, state in enumerate(islice(states, 1, n_steps + 1), 1):  # the first state is the start itself
        if step % thin == 0:
            kept.append(state)
        if (step % _STEPS_BETWEEN_LOOKS == 0 or step == n_steps) and len(kept) >= 4:
            used = kept[len(kept) // _BURN_IN :]
            # differences of logits, because labels say nothing about the level that all classes share
            r_hat = float(split_r_hat(torch.stack([s.f - s.f.mean(-1, keepdim=True) for s in used])).max())
            if r_hat < _MIXED:
                break
    used = used or kept
    every = -(-n_chains * len(used) // most_draws(n_chains))
    draws = (torch.cat([getattr(s.sites, name) for s in used[::every]]) for name in Sites._fields)
    return Sites(*draws), r_hat
