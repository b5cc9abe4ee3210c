"""What the tests of both samplers share: long runs of many chains, and simulation-based calibration."""

import numpy as np
import torch
from checks import assert_mean, assert_uniform
from oracle import array
from tasks import tensor

from polyshot.gp import GPModel, gibbs


def assert_posterior_moments(chain, moments, slack):
    """First and second moments of f in a Chain [S, M, N, C] equal the exact ones.

    Chains are independent and a chain's own average has any correlation in it, so the standard error is that of the
    chains' averages. `slack` is the error of the quadrature.
    """
    f = array(chain.f)  # [S, M, N, C]
    f = np.swapaxes(f, -1, -2).reshape(*f.shape[:2], -1)
    assert_mean(f.mean(0), moments.mean, slack)
    products = np.einsum("smi,smj->mij", f, f) / len(f)
    assert_mean(products, moments.second, slack)


def calibration_ranks(model: GPModel, K, n_way, mean=0.0, n_tasks=1200, n_chains=19, n_steps=25, seed=0):
    """Ranks of scalars of the true f among independent posterior draws of it (Talts et al. 2018).

    f comes from the prior, y from the likelihood; for each data set the last steps of `n_chains` chains are posterior
    draws, if the sampler is right and has forgotten its start. Ranks [n_tasks, scalars] are then uniform.
    """
    rng = np.random.default_rng(seed)
    n = len(K)
    f = mean + np.linalg.cholesky(K) @ rng.standard_normal((n_tasks, n, n_way))
    p = model.likelihood.log_probs(tensor(f)).exp().numpy()
    y = torch.from_numpy((rng.random((n_tasks, n, 1)) > p.cumsum(-1)[..., :-1]).sum(-1))
    chain = gibbs(
        model, tensor(K).expand(n_tasks, n, n), y, n_way, mean=mean, n_chains=n_chains, n_steps=n_steps, seed=seed
    )
    draws = chain.f[:, 0]  # [n_tasks, M, N, C]
    truth = tensor(f)[:, None]

    def scalars(f):
        labels = y[:, None].expand(f.shape[:-1])
        log_likelihood = model.likelihood.log_likelihood(f, labels).sum(-1)
        return torch.stack([f[..., 0, 0], f[..., 1, 1], f[..., 0, 0] * f[..., 1, 1], log_likelihood], -1)

    return (scalars(draws) < scalars(truth)).sum(1).numpy()


def assert_calibrated(ranks, n_chains=19):
    for column in ranks.T:
        assert_uniform(column, n_chains + 1)
