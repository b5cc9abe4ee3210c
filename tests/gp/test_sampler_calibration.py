"""Geweke's joint test of both samplers: drawing labels and latents in turn must leave the prior as it is.

f starts at the prior. Each round draws y given f, sites given f and y, and f given sites and y. All three keep the
joint distribution if the sampler is right, so after any number of rounds f is a draw from the prior (Geweke 2004).
A prior mean that favours the first class makes the labels unbalanced.
"""

import numpy as np
import pytest
import torch
from checks import assert_mean
from tasks import make_task, tensor

from polyshot.gp import LogisticSoftmaxGP, OneVsEachGP, Prior, as_generators, draw_latent, draw_prior

N, ROUNDS, CHAINS = 3, 5, 400


@pytest.mark.parametrize("log_scale", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("n_way", [2, 3])
@pytest.mark.parametrize("model", [OneVsEachGP(), LogisticSoftmaxGP()], ids=["one-vs-each", "logistic-softmax"])
def test_labels_and_latents_drawn_in_turn_keep_the_prior(model, n_way, log_scale):
    task = make_task(N, n_way, log_scale, seed=n_way)
    mean = torch.tensor([1.0, -0.5, 0.0]).double()[:n_way].expand(CHAINS, 1, N, n_way)
    batch = (tensor(x).expand(CHAINS, *x.shape) for x in (task.K, task.root))
    prior, generators, rng = Prior(*batch, mean), as_generators(1, CHAINS), np.random.default_rng(2)
    f = draw_prior(prior, 1, generators)
    for _ in range(ROUNDS):
        shares = model.likelihood.log_probs(f[:, 0]).exp().numpy().cumsum(-1)
        y = torch.from_numpy((rng.random((CHAINS, N, 1)) > shares[..., :-1]).sum(-1))
        f = draw_latent(model, prior, y, model.draw_sites(f, y, generators), generators)
    assert (y == 0).double().mean() > 1.2 / n_way  # unbalanced
    centred = (f - mean)[:, 0].numpy()
    assert_mean(centred, 0.0)
    for c in range(n_way):
        assert_mean(np.einsum("bi,bj->bij", centred[..., c], centred[..., c]), task.K)
        assert_mean(np.einsum("bi,bj->bij", centred[..., c], centred[..., c - 1]), 0.0)
