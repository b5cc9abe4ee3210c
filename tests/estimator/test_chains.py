"""Which steps of which chains become draws; the steps themselves are replaced by numbered ones."""

from itertools import count

import numpy as np
import pytest
import torch

from polyshot.estimator import chains
from polyshot.gp import GibbsState, OneVsEachGP, Sites


def numbered_draws(monkeypatch, n_chains, n_steps):
    """Step and chain of every draw: omega holds the step's number, kappa the chain's."""

    def states(*_):
        for step in count():
            numbers = torch.full((n_chains, 2, 2), float(step), dtype=torch.float64)
            chain = torch.arange(n_chains, dtype=torch.float64)[:, None, None].expand(-1, 2, 2)
            f = torch.randn(n_chains, 2, 2, generator=torch.Generator().manual_seed(step))
            f = f + chain * torch.tensor([3.0, 0.0])  # a level of its own for each chain: they never mix
            yield GibbsState(f, Sites(numbers, chain))

    monkeypatch.setattr(chains, "gibbs_states", states)
    start = Sites(*2 * [torch.zeros(1, 2, 2, dtype=torch.float64)])
    task = torch.eye(2, dtype=torch.float64), torch.tensor([0, 1])
    draws, _ = chains.run_chains(OneVsEachGP(), *task, start, n_chains, n_steps, np.random.default_rng(0))
    return draws.omega[:, 0, 0].numpy(), draws.kappa[:, 0, 0].numpy()


@pytest.mark.parametrize("n_chains", [2, 4, 16])
def test_every_chain_gives_equally_many_draws_and_more_chains_give_more(monkeypatch, n_chains):
    _, chain = numbered_draws(monkeypatch, n_chains, 5000)
    counts = np.bincount(chain.astype(int), minlength=n_chains)
    assert (counts == counts[0]).all()
    assert 40 * max(4, n_chains) <= len(chain) <= 50 * max(4, n_chains)


def test_the_first_steps_are_left_out(monkeypatch):
    step, _ = numbered_draws(monkeypatch, 4, 1000)
    assert 200 <= step.min() <= 250
    assert step.max() > 900
