"""The structured algebra of the one-vs-each GP against dense matrices, to the issue's 1e-8 relative in double."""

import numpy as np
import pytest
import torch
from checks import assert_close, assert_mean, central_difference
from hypothesis import given
from integration import one_vs_each_posterior
from oracle import Dense, array, paper_conditional, precise_conditional, unvec, vec
from tasks import Task, make_task, tasks, tensor

from polyshot.errors import InputError
from polyshot.gp import OneVsEachGP, Sites, fit_variational, gibbs, polya_gamma_mean, sample_polya_gamma

TOLERANCE = 1e-8
MODEL = OneVsEachGP()


def dense_of(task: Task, **options) -> Dense:
    return Dense(task.K, task.y, task.omega, task.kappa, mean=task.mean, **options)


def condition(task: Task, with_gradient: bool = False):
    """There are two routes to the factors, one of them for K that needs a gradient."""
    K = tensor(task.K).requires_grad_(with_gradient)
    return MODEL.condition(K, task.labels, task.sites, tensor(task.mean))


@pytest.mark.parametrize("with_gradient", [False, True])
@given(task=tasks())
def test_the_conditional_mean_is_the_dense_one(with_gradient, task):
    dense, conditional = dense_of(task), condition(task, with_gradient)
    assert_close(array(conditional.a)[0], unvec(dense.a, task.n_way), TOLERANCE)
    mean = conditional.query(tensor(task.K), tensor(task.K.diagonal().copy()), tensor(task.mean)).mean
    assert_close(array(mean)[0], dense.mean, TOLERANCE)


@pytest.mark.parametrize("with_gradient", [False, True])
@given(task=tasks())
def test_the_conditional_covariance_is_the_dense_one(with_gradient, task):
    # The support points as queries: the C x C blocks, example by example, of the covariance of f.
    covariance = condition(task, with_gradient).query(tensor(task.K), tensor(task.K.diagonal().copy())).covariance
    n = len(task.y)
    blocks = dense_of(task).covariance.reshape(task.n_way, n, task.n_way, n)
    assert_close(array(covariance)[0], np.einsum("cidi->icd", blocks), TOLERANCE)


@given(task=tasks())
def test_the_sum_of_the_class_blocks_is_the_dense_one(task):
    n = len(task.y)
    blocks = dense_of(task).G.reshape(task.n_way, n, task.n_way, n)
    assert_close(array(condition(task).block_sum())[0], np.einsum("cicj->ij", blocks), TOLERANCE)


@pytest.mark.parametrize("with_gradient", [False, True])
@given(task=tasks())
def test_the_query_posterior_is_the_dense_one(with_gradient, task):
    means, covariances = dense_of(task).query(task.K_star, task.k_star_star, mean=0.7)
    logits = condition(task, with_gradient).query(tensor(task.K_star), tensor(task.k_star_star), 0.7)
    assert_close(array(logits.mean)[0], means, TOLERANCE)
    assert_close(array(logits.covariance)[0], covariances, TOLERANCE)


@given(task=tasks())
def test_the_log_marginal_and_its_gradients_are_the_dense_ones(task):
    dense = dense_of(task)
    K, mean = tensor(task.K).requires_grad_(), tensor(task.mean).requires_grad_()
    value = MODEL.log_marginal(K, task.labels, task.sites, mean)
    value.sum().backward()
    assert_close(array(value), [dense.log_marginal], TOLERANCE, floor=1.0)
    assert_close(array(K.grad), dense.gradient_in_K, TOLERANCE)
    assert_close(array(mean.grad), unvec(dense.a, task.n_way), TOLERANCE)
    assert_close(array(condition(task).log_marginal), [dense.log_marginal], TOLERANCE, floor=1.0)


@given(task=tasks(log_scales=(-3.0, 3.0)))
def test_the_gradients_of_the_log_marginal_are_finite_differences_of_the_dense_formula(task):
    rng = np.random.default_rng(0)
    dK, dmean = rng.standard_normal((2, *task.root.shape))[0], rng.standard_normal(task.mean.shape)
    K, mean = tensor(task.K).requires_grad_(), tensor(task.mean).requires_grad_()
    MODEL.log_marginal(K, task.labels, task.sites, mean).sum().backward()

    def moved(t_K=0.0, t_mean=0.0):
        root = task.root + t_K * dK
        return Dense(root @ root.T, task.y, task.omega, task.kappa, mean=task.mean + t_mean * dmean).log_marginal

    tangent = dK @ task.root.T + task.root @ dK.T
    # A step of 1e-3 leaves 1e-12 of the fifth derivative and rounding of 1e-13 of the value over the step.
    slopes = [central_difference(moved, 1e-3), central_difference(lambda t: moved(t_mean=t), 1e-3)]
    assert_close([(array(K.grad) * tangent).sum(), (array(mean.grad) * dmean).sum()], slopes, 1e-7, floor=1.0)


@given(task=tasks())
def test_solve_and_its_variances_are_the_dense_ones(task):
    dense = dense_of(task)
    r = np.random.default_rng(0).standard_normal(task.omega.shape) * (task.omega > 0)
    a, variance = MODEL.solve_with_variance(tensor(task.K), task.labels, tensor(task.omega)[None], tensor(r)[None])
    expected = dense.A.T @ np.linalg.solve(dense.B, vec(r)[vec(task.omega) > 0])
    assert_close(array(a)[0], unvec(expected, task.n_way), TOLERANCE)
    assert torch.equal(a, MODEL.solve(tensor(task.K), task.labels, tensor(task.omega)[None], tensor(r)[None]))
    psi_variance = np.zeros(task.omega.size)
    psi_variance[vec(task.omega) > 0] = np.diag(dense.A @ dense.covariance @ dense.A.T)
    # Differences of covariances as large as K: that is what they are exact in relation to.
    assert_close(array(variance)[0], unvec(psi_variance, task.n_way), TOLERANCE, floor=np.abs(task.K).max())


def test_the_conditional_is_that_of_the_papers_main_text():
    task = make_task(n=6, n_way=4, seed=3)._replace(mean=np.zeros((6, 4)))
    # The paper keeps psi = 0 for the own class, with any omega: it must not matter.
    own = task.omega == 0
    mean, covariance = paper_conditional(task.K, task.y, np.where(own, 0.3, task.omega), 4)
    dense = dense_of(task)
    # K is inverted here, whose condition number is about 1e3.
    assert_close(vec(dense.mean), mean, 1e-10)
    assert_close(dense.covariance, covariance, 1e-10)
    with_own = Dense(task.K, task.y, np.where(own, 0.3, task.omega), np.full((6, 4), 0.5))
    assert with_own.log_marginal - dense.log_marginal == pytest.approx(-6 * np.log(2), rel=1e-12)


@given(task=tasks())
def test_several_chains_are_one_after_another(task):
    omega = torch.stack([tensor(task.omega) * s for s in (0.1, 1.0, 10.0)])
    sites = Sites(omega, task.sites.kappa.expand_as(omega))
    K, y, mean = tensor(task.K), task.labels, tensor(task.mean)
    together = MODEL.log_marginal(K, y, sites, mean)
    alone = [MODEL.log_marginal(K, y, Sites(omega[i : i + 1], sites.kappa[:1]), mean) for i in range(3)]
    assert_close(array(together), array(torch.cat(alone)), 1e-12, floor=1.0)


# A singular K is singular only up to rounding, 1e-16 of its scale: of 16 digits the square of the scale is lost.
@pytest.mark.parametrize(
    ("kind", "log_scale", "tolerance"),
    [("full", scale, TOLERANCE) for scale in (-20.0, 14.0, 20.0)]
    + [
        (kind, *case)
        for kind in ("rank one", "duplicates")
        for case in ((-20.0, TOLERANCE), (14.0, 1e-7), (20.0, 1e-2))
    ],
)
def test_extreme_scales_agree_with_sixty_digits(kind, log_scale, tolerance):
    task = make_task(n=4, n_way=3, log_scale=log_scale, kind=kind, y=[0, 2, 0, 1], seed=1)
    log_marginal, means, covariances = precise_conditional(task.K, task.y, task.omega, task.K_star, task.k_star_star)
    conditional = condition(task._replace(mean=np.zeros((4, 3))))
    logits = conditional.query(tensor(task.K_star), tensor(task.k_star_star))
    assert_close(array(conditional.log_marginal), [log_marginal], tolerance, floor=1.0)
    assert_close(array(logits.mean)[0], means, tolerance)
    assert_close(array(logits.covariance)[0], covariances, tolerance)


@pytest.mark.parametrize(("n", "n_way", "nodes"), [(1, 2, 60), (3, 2, 40), (2, 3, 24), (1, 4, 40)])
def test_the_average_over_the_prior_of_omega_is_the_evidence(n, n_way, nodes):
    task = make_task(n, n_way, log_scale=0.5, y=np.arange(n) % n_way, seed=n)
    c = torch.zeros(60_000, n, n_way).double()
    omega = sample_polya_gamma(1, c, seed=0) * tensor(task.omega > 0)
    sites = Sites(omega, tensor(task.kappa).expand_as(omega))
    mean = 0.5 * task.mean
    p = MODEL.log_marginal(tensor(task.K), task.labels, sites, tensor(mean)).exp()
    evidence = one_vs_each_posterior(task.K, task.y, n_way, nodes, mean=mean).log_evidence
    assert_mean(array(p), np.exp(evidence))


def test_weights_are_the_number_of_times_a_comparison_counts():
    weights = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 4.0], [2.0, 1.0, 1.0]])
    model = OneVsEachGP(weights)
    task = make_task(n=4, n_way=3, y=[0, 1, 2, 0])
    b = model.comparisons(task.labels, 3)
    assert b.tolist() == [[0, 2, 3], [1, 0, 4], [2, 1, 0], [0, 2, 3]]
    sites = Sites(task.sites.omega, b[None] / 2)
    dense = Dense(task.K, task.y, task.omega, array(b) / 2, mean=task.mean)
    K = tensor(task.K).requires_grad_()
    value = model.log_marginal(K, task.labels, sites, tensor(task.mean))
    value.sum().backward()
    assert_close(array(value), [dense.log_marginal], TOLERANCE)
    assert_close(array(K.grad), dense.gradient_in_K, TOLERANCE)


def test_a_weight_of_zero_leaves_the_comparison_out():
    model = OneVsEachGP(torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 1.0], [3.0, 0.0, 1.0]]))
    task = make_task(n=5, n_way=3, y=[0, 1, 2, 0, 2])
    K = tensor(task.K)
    drawn = gibbs(model, K, task.labels, 3, n_chains=2, n_steps=3, latent=False, seed=0).draws
    for sites in (drawn, fit_variational(model, K, task.labels, 3).sites):
        left_out = model.comparisons(task.labels, 3) == 0
        assert bool((sites.omega[:, left_out] == 0).all())
        assert bool((sites.kappa[:, left_out] == 0).all())
        assert bool((sites.omega[:, ~left_out] > 0).all())
        for omega, kappa, value in zip(
            sites.omega, sites.kappa, model.log_marginal(K, task.labels, sites), strict=True
        ):
            dense = Dense(task.K, task.y, array(omega), array(kappa))
            assert float(value) == pytest.approx(dense.log_marginal, rel=1e-9)


def test_weighted_sites_are_drawn_from_pg_of_the_weight():
    weights = torch.tensor([[1.0, 3.0], [2.0, 1.0]])
    f = torch.tensor([[1.0, -0.5], [0.3, 2.0]]).double().expand(20_000, 2, 2)
    sites = OneVsEachGP(weights).draw_sites(f, torch.tensor([0, 1]), [np.random.default_rng(0)])
    b = torch.tensor([[0.0, 3.0], [2.0, 0.0]]).double()
    assert_mean(array(sites.omega), array(polya_gamma_mean(b, torch.tensor([[1.5, 1.5], [1.7, 1.7]]).double())))
    assert torch.equal(sites.kappa, (b / 2).expand(20_000, 2, 2))


def test_fractional_weights_are_an_error_for_the_sampler_and_another_number_of_classes_for_all():
    f = torch.zeros(1, 1, 2).double()
    with pytest.raises(InputError, match="integer"):
        OneVsEachGP(torch.full((2, 2), 0.5)).draw_sites(f, torch.tensor([0]), [np.random.default_rng(0)])
    with pytest.raises(InputError, match="classes"):
        OneVsEachGP(torch.ones(3, 3)).comparisons(torch.tensor([0]), 2)


def test_a_kernel_matrix_of_single_precision_is_conditioned_on_in_double():
    task = make_task(n=5, n_way=3, seed=1)
    K, y = tensor(task.K), task.labels
    sites = MODEL.draw_sites(torch.zeros(2, 5, 3).double(), y, [np.random.default_rng(0)])
    assert sites.kappa.dtype == torch.float64
    star, own = tensor(task.K_star), tensor(task.k_star_star)
    for logits in (
        MODEL.condition(K.float(), y, sites).query(star, own),
        MODEL.query(K.float(), y, sites, star.float(), own.float()),
    ):
        assert logits.mean.dtype == torch.float64
        assert_close(array(logits.mean), array(MODEL.query(K, y, sites, star, own).mean), 1e-4)
