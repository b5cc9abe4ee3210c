"""Predictions normalised once over the chains, and scores for "none of these"."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from small_task import N_WAY, SPACE, D, episode, mean_log_sigmoid

from polyshot.gp import OneVsEachGP, Sites, gibbs
from polyshot.methods import build_method
from polyshot.methods.ove_gp import expected_log_likelihoods, extra_class_score


def posterior_scores(method, e, seed):
    """The chains' expected log-sigmoids of every query, by quadrature."""
    x = e.support.x.double()
    with torch.no_grad():
        K, z = method.kernel(x), e.query.x.double()
        sites = method.posterior(K[None], e.support.y[None], N_WAY, [np.random.default_rng(seed)])
        logits = method.model().query(
            K, e.support.y, Sites(*(s[0] for s in sites)), method.kernel(z, x), method.kernel.diagonal(z)
        )
    return logits.mean.numpy(), logits.covariance.numpy()


@pytest.mark.parametrize("name", ["ove-gp", "logistic-softmax-gp"])
def test_with_average_score_predictions_are_normalised_once(name):
    options = {"average": "score", "n_chains": 3, "test_steps": 2, "log_scale": 1.0}
    own = {"inference": "gibbs", "calibrate": False, "outlier": "sum"} if name == "ove-gp" else {}
    method, e = build_method(name, SPACE, options={**options, **own}), episode()
    means, covariances = posterior_scores(method, e, 4)
    sums = np.zeros((len(e.query.y), N_WAY))
    for mean, covariance in zip(means, covariances, strict=True):
        for q in range(len(mean)):
            for c in range(N_WAY):
                others = set(range(N_WAY)) - {c} if name == "ove-gp" else {None}
                for other in others:
                    contrast = np.eye(N_WAY)[c] - (0 if other is None else np.eye(N_WAY)[other])
                    moments = contrast @ mean[q], contrast @ covariance[q] @ contrast
                    sums[q, c] += mean_log_sigmoid(*moments) / len(means)
    prediction = method.adapt(e.support, N_WAY, seed=4)(e.query.x)
    np.testing.assert_allclose(prediction.log_probs, log_softmax(sums, axis=1), atol=1e-6)
    if name == "ove-gp":  # the public code's score for "none of these"
        np.testing.assert_allclose(prediction.outlier, -sums.max(1), atol=1e-6)


def test_the_extra_class_competes_under_an_rbf_of_the_median_distance():
    x, y = torch.randn(6, D, generator=torch.Generator().manual_seed(1)).double(), torch.arange(6) % N_WAY
    query = torch.cat([x[:2], 3 * x[:2], 100 * x[:1]])
    squared = torch.cdist(x, x).square()
    pairs = [squared[i, j].item() for i in range(6) for j in range(i)]
    median = sorted(pairs)[7]  # of 15

    def kernel(a, b):
        return math.e * torch.exp(-torch.cdist(a, b).square() / median)

    chains = gibbs(OneVsEachGP(), kernel(x, x), y, N_WAY + 1, n_chains=4000, n_steps=60, latent=False, seed=0).draws
    logits = OneVsEachGP().condition(kernel(x, x), y, chains).query_mean(kernel(query, x)).mean(0)
    expected = logits[:, -1] - logits[:, :-1].amax(1)
    score = extra_class_score(x, y, N_WAY)(query)
    torch.testing.assert_close(score, expected, atol=0.03, rtol=0)
    assert score[:2].max() < score[2:].min()
    assert score[-1].item() == pytest.approx(0, abs=1e-6)  # far from all examples, all logits are the prior's


def test_the_score_of_the_extra_class_has_three_parts():
    e, scores = episode(), {}
    for outlier in ("extra-class", "sum"):
        method = build_method("ove-gp", SPACE, options={"log_scale": 1.0, "outlier": outlier})
        scores[outlier] = method.adapt(e.support, N_WAY)(e.query.x).outlier
    x, y, z = e.support.x.double(), e.support.y, e.query.x.double()
    with torch.no_grad():
        K = method.kernel(x)
        chains = gibbs(OneVsEachGP(), K, y, N_WAY + 1, n_chains=4000, n_steps=60, latent=False, seed=0).draws
        logits = OneVsEachGP().query(K, y, chains, method.kernel(z, x), method.kernel.diagonal(z))
        sums = expected_log_likelihoods(logits)
        own = sums[:, -1] - sums[:, :-1].amax(1)
        expected = scores["sum"] + extra_class_score(x, y, N_WAY)(z) + 0.3 * own
    torch.testing.assert_close(scores["extra-class"], expected, atol=0.03, rtol=0)


def test_without_an_outlier_score_there_is_none():
    e = episode()
    assert build_method("ove-gp", SPACE, options={"outlier": "none"}).adapt(e.support, N_WAY)(e.query.x).outlier is None
    method = build_method("ove-gp", SPACE)
    method.calibrate([e])
    assert method.outlier == "extra-class"


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_a_far_query_has_a_larger_outlier_score_than_a_near_one(kernel):
    method, e = build_method("ove-gp", SPACE, options={"kernel": kernel}), episode(n_shot=5)
    near, far = (method.adapt(e.support, N_WAY)(x).outlier for x in (e.query.x, 10 * e.query.x))
    assert near.max() < far.min()
