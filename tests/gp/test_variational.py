import numpy as np
import pytest
import torch
from checks import assert_close, assert_mean, central_difference
from hypothesis import given, settings
from integration import one_vs_each_posterior
from oracle import Dense, array, unvec, vec
from scipy.special import log_expit
from tasks import make_task, tasks, tensor

from polyshot.gp import (
    OneVsEachGP,
    Sites,
    elbo,
    fit_variational,
    gibbs,
    polya_gamma_mean,
    predict,
    variational_start,
)

MODEL = OneVsEachGP()


def fit(task, model=MODEL, **options):
    options = {"mean": tensor(task.mean), "tolerance": 1e-10, "max_iterations": 5000} | options
    return fit_variational(model, tensor(task.K), task.labels, task.n_way, **options)


def mean_omega(tilt, b):
    return b * array(polya_gamma_mean(1.0, tensor(tilt)))


def jaakkola_jordan(K, task, tilt):
    """The bound by another route: sigmoid(psi) >= sigmoid(c) exp((psi - c) / 2 - omega (psi^2 - c^2) / 2)."""
    omega = mean_omega(tilt, task.omega > 0)
    dense = Dense(K, task.y, omega, task.kappa, mean=task.mean, b=np.zeros_like(omega))
    constants = log_expit(tilt) - tilt / 2 + omega * tilt**2 / 2
    return dense.log_marginal + constants[task.omega > 0].sum()


def plain_ascent(task, n_iterations, b=None):
    """Coordinate ascent in dense matrices: returns the tilts [N, C] of every iteration."""
    there = task.omega > 0
    b = there * 1.0 if b is None else b
    tilt, tilts = np.where(there, 1.0, 0.0), []
    for _ in range(n_iterations):
        dense = Dense(task.K, task.y, mean_omega(tilt, b), b / 2, mean=task.mean)
        psi = dense.A @ vec(dense.mean)
        square = np.zeros(there.size)
        square[vec(there)] = psi**2 + np.diag(dense.A @ dense.covariance @ dense.A.T)
        tilt = np.sqrt(unvec(square, task.n_way))
        tilts.append(tilt)
    return tilts


@settings(max_examples=25)
@given(task=tasks(log_scales=(-5.0, 2.0)))
def test_the_fixed_point_is_that_of_plain_dense_coordinate_ascent(task):
    q = fit(task)
    assert q.converged
    # 200 plain steps contract to 1e-6 and better at these scales.
    assert_close(array(q.tilt), plain_ascent(task, 200)[-1], 1e-6)
    assert_close(array(q.sites.omega)[0], mean_omega(array(q.tilt), task.omega > 0), 1e-12)


@given(task=tasks())
def test_the_answer_is_a_fixed_point_at_every_scale(task):
    # What changes by 1e-10 a step may still be further from the limit; it must not move in another plain step.
    q = fit(task)
    again = fit(task, start=q.tilt, max_iterations=1)
    assert q.converged
    assert_close(array(again.tilt), array(q.tilt), 1e-8)


@given(task=tasks(log_scales=(-5.0, 6.0)))
def test_the_elbo_is_the_jaakkola_jordan_bound(task):
    q = fit(task, max_iterations=3)
    value = elbo(MODEL, tensor(task.K), task.labels, q, tensor(task.mean))
    assert_close(array(value), jaakkola_jordan(task.K, task, array(q.tilt)), 1e-8, floor=1.0)


@settings(max_examples=25)
@given(task=tasks(log_scales=(-3.0, 6.0)))
def test_every_plain_step_raises_the_elbo_and_the_fit_has_the_highest(task):
    start, values = tensor(np.where(task.omega > 0, 3.0, 0.0)), []
    for _ in range(12):
        q = fit(task, start=start, max_iterations=1)
        values.append(float(elbo(MODEL, tensor(task.K), task.labels, q, tensor(task.mean))))
        start = q.tilt
    values.append(float(elbo(MODEL, tensor(task.K), task.labels, fit(task), tensor(task.mean))))
    assert np.diff(values).min() > -1e-9 * max(1.0, abs(values[-1]))


@pytest.mark.parametrize(("n", "n_way", "nodes"), [(1, 2, 60), (3, 2, 40), (2, 3, 22), (1, 4, 40)])
@pytest.mark.parametrize("log_scale", [-2.0, 1.0])
def test_the_elbo_is_below_the_evidence_and_not_far(n, n_way, nodes, log_scale):
    task = make_task(n, n_way, log_scale, y=np.arange(n) % n_way, seed=n)
    bound = float(elbo(MODEL, tensor(task.K), task.labels, fit(task), tensor(task.mean)))
    evidence = one_vs_each_posterior(task.K, task.y, n_way, nodes, mean=task.mean).log_evidence
    assert evidence - 0.2 * n * (n_way - 1) < bound < evidence


def test_no_tilt_can_be_changed_for_the_better():
    task = make_task(n=5, n_way=3, log_scale=2.0)
    tilt = array(fit(task).tilt)
    rng = np.random.default_rng(0)
    for _ in range(5):
        direction = rng.standard_normal(tilt.shape)
        slope = central_difference(lambda t, d=direction: jaakkola_jordan(task.K, task, tilt * (1 + t * d)), 1e-3)
        assert abs(slope) < 1e-7
    best = jaakkola_jordan(task.K, task, tilt)
    assert all(jaakkola_jordan(task.K, task, tilt * factor) < best for factor in (0.8, 0.95, 1.05, 1.25))


def test_the_gradient_of_the_elbo_is_that_of_the_converged_one():
    task = make_task(n=5, n_way=3, log_scale=1.5)
    rng = np.random.default_rng(1)
    direction, shift = rng.standard_normal(task.root.shape), rng.standard_normal(task.mean.shape)
    K, mean = tensor(task.K).requires_grad_(), tensor(task.mean).requires_grad_()
    elbo(MODEL, K, task.labels, fit(task), mean).backward()

    def converged(moved):
        q = fit(moved, tolerance=1e-12)
        return float(elbo(MODEL, tensor(moved.K), task.labels, q, tensor(moved.mean)))

    in_K = central_difference(lambda t: converged(task._replace(root=task.root + t * direction)), 1e-3)
    in_mean = central_difference(lambda t: converged(task._replace(mean=task.mean + t * shift)), 1e-3)
    tangent = direction @ task.root.T + task.root @ direction.T
    assert_close([(array(K.grad) * tangent).sum(), (array(mean.grad) * shift).sum()], [in_K, in_mean], 1e-7)


def test_fractional_weights_have_the_fixed_point_of_plain_ascent():
    weights = torch.tensor([[1.0, 0.5, 2.5], [1.5, 1.0, 0.7], [2.0, 0.3, 1.0]])
    task = make_task(n=5, n_way=3, log_scale=1.0, y=[0, 1, 2, 2, 0])
    model = OneVsEachGP(weights)
    q = fit(task, model)
    b = array(model.comparisons(task.labels, 3))
    assert_close(array(q.tilt), plain_ascent(task, 300, b)[-1], 1e-6)
    assert_close(array(q.sites.kappa)[0], b / 2, 1e-15)


def test_the_variational_predictive_is_close_to_the_long_run():
    task = make_task(n=10, n_way=5, log_scale=2.0, y=np.arange(10) % 5)
    args = (tensor(task.K), task.labels)
    star = (tensor(task.K_star), tensor(task.k_star_star))
    chain = gibbs(MODEL, *args, 5, n_chains=200, n_steps=40, burn_in=20, seed=0, latent=False)
    long_run = predict(MODEL, *args, chain.draws, *star, rule="sigmoid").log_probs
    variational = predict(MODEL, *args, fit(task, mean=0.0).sites, *star, rule="sigmoid").log_probs
    divergence = (long_run.exp() * (long_run - variational)).sum(-1)
    assert float(divergence.max()) < 0.01


def test_chains_start_from_the_variational_sites():
    task = make_task(n=3, n_way=3, log_scale=1.0, y=[0, 1, 2])
    q = fit(task, mean=0.0, tolerance=1e-2)
    options = {"n_steps": 1, "start": variational_start, "seed": 0, "latent": False}
    chain = gibbs(MODEL, tensor(task.K), task.labels, 3, n_chains=20_000, **options)
    # variational_start fits q with the same tolerance of 1e-2, so the tilts are the same.
    assert_mean(array(chain.sites.omega[0]), array(q.sites.omega)[0], slack=1e-12)


def test_an_unfinished_ascent_says_so():
    q = fit(make_task(log_scale=6.0), max_iterations=2)
    assert not q.converged
    assert q.n_iterations == 2
    assert isinstance(q.sites, Sites)
    assert q.sites.omega.shape == (1, 5, 3)


def test_a_start_at_no_tilt_is_taken():
    task = make_task(n=6, n_way=3, seed=2)
    K, y = tensor(task.K), task.labels
    start = torch.zeros(6, 3, dtype=torch.float64)
    assert_close(
        array(fit_variational(MODEL, K, y, 3, start=start).tilt), array(fit_variational(MODEL, K, y, 3).tilt), 1e-4
    )
