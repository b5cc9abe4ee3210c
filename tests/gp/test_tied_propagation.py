import math

import pytest
import torch

from polyshot.gp import (
    Cosine,
    OneVsEachGP,
    Sites,
    TiedConditional,
    class_log_probs,
    fit_propagation,
    fit_tied_propagation,
    log_evidence,
    predict,
)


def task(n_way=4, n_shot=3, seed=0, log_scale=2.0, dim=8):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(n_way, dim, generator=generator, dtype=torch.float64)
    y = torch.arange(n_way).repeat_interleave(n_shot)
    x = centres[y] + torch.randn(len(y), dim, generator=generator, dtype=torch.float64)
    queries = torch.randn(6, dim, generator=generator, dtype=torch.float64)
    kernel = Cosine(log_scale).double()
    with torch.no_grad():
        return kernel(x), y, kernel(queries, x), kernel.diagonal(queries)


def random_sites(y, n_way, seed=0):
    generator = torch.Generator().manual_seed(seed)
    w = 0.1 + torch.rand(len(y), generator=generator, dtype=torch.float64)
    kappa = 0.1 + torch.rand(len(y), n_way, generator=generator, dtype=torch.float64)
    kappa[torch.arange(len(y)), y] = 0
    return w, kappa


def general(K, y, w, kappa):
    return OneVsEachGP().condition(K, y, Sites(((kappa != 0) * w[:, None])[None], kappa[None]))


@pytest.mark.parametrize(("n_way", "n_shot", "log_scale"), [(2, 3, 2.0), (4, 3, 6.0), (7, 1, -3.0)])
def test_two_systems_give_the_posterior_of_the_general_algebra(n_way, n_shot, log_scale):
    K, y, K_star, k_star_star = task(n_way, n_shot, log_scale=log_scale)
    w, kappa = random_sites(y, n_way)
    ours, theirs = TiedConditional.of(K, y, w, kappa), general(K, y, w, kappa)
    torch.testing.assert_close(ours.a, theirs.a[0], rtol=1e-8, atol=1e-8)
    mine, other = ours.query(K_star, k_star_star), theirs.query(K_star, k_star_star)
    torch.testing.assert_close(mine.mean, other.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(mine.covariance, other.covariance, rtol=1e-8, atol=1e-8)
    halves = 2 * math.log(2) * kappa.sum()
    assert ours.log_integral == pytest.approx(float(theirs.log_marginal[0] + halves), rel=1e-8)


def test_contrasts_are_those_of_the_logits_at_the_support():
    K, y, _, _ = task()
    w, kappa = random_sites(y, 4)
    mean, variance = TiedConditional.of(K, y, w, kappa).contrasts()
    logits = general(K, y, w, kappa).query(K, K.diagonal())
    each = torch.arange(len(y))
    S = logits.covariance[0]
    spread = S.diagonal(dim1=-2, dim2=-1)
    expected = spread[each, y][:, None] + spread - 2 * S[each, y]
    torch.testing.assert_close(variance, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mean, logits.mean[0][each, y][:, None] - logits.mean[0], rtol=1e-9, atol=1e-9)


def test_leaving_one_out_equals_fitting_the_others_with_their_sites():
    K, y, _, _ = task()
    fit, posterior = fit_tied_propagation(K, y, 4)
    left_out = posterior.leave_one_out(fit.w, fit.kappa, torch.arange(len(y)))
    for i in range(len(y)):
        others = torch.arange(len(y)) != i
        rest = general(K[others][:, others], y[others], fit.w[others], fit.kappa[others])
        expected = rest.query(K[i : i + 1][:, others], K[i, i][None]).mean[0, 0]
        torch.testing.assert_close(left_out[i] - left_out[i, y[i]], expected - expected[y[i]], rtol=1e-7, atol=1e-7)


def test_with_two_classes_it_is_expectation_propagation_itself():
    K, y, _, _ = task(n_way=2, n_shot=4, log_scale=4.0)
    exact = fit_propagation(OneVsEachGP(), K, y, 2, tolerance=1e-9)
    tied, _ = fit_tied_propagation(K, y, 2, tolerance=1e-9)
    torch.testing.assert_close(tied.sites.omega, exact.sites.omega, rtol=1e-6, atol=1e-9)
    assert tied.log_evidence == pytest.approx(float(log_evidence(OneVsEachGP(), K, y, exact)), rel=1e-9)


@pytest.mark.parametrize("log_scale", [0.0, 3.0, 6.0])
def test_sharing_precisions_costs_next_to_nothing_at_a_within_class_cosine_of_a_half(log_scale):
    K, y, K_star, k_star_star = task(n_way=5, n_shot=5, log_scale=log_scale, dim=64)
    model = OneVsEachGP()
    full = fit_propagation(model, K, y, 5).sites
    exact = predict(model, K, y, full, K_star, k_star_star, rule="monte-carlo", seed=0).log_probs
    _, posterior = fit_tied_propagation(K, y, 5)
    logits = posterior.query(K_star, k_star_star)
    noise = torch.randn(1, 20000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tied = class_log_probs(logits, model.likelihood, "monte-carlo", noise=noise)[0]
    assert float((exact.exp() * (exact - tied)).sum(-1).mean()) < 1e-3


@pytest.mark.parametrize("log_scale", [0.0, 3.6, 4.75])
def test_sweeps_converge_where_many_examples_of_two_classes_overlap_in_two_dimensions(log_scale):
    K, y, _, _ = task(n_way=2, n_shot=100, log_scale=log_scale, dim=2, seed=1)
    fit, posterior = fit_tied_propagation(K, y, 2)
    assert fit.converged
    right = ((posterior.K @ posterior.a).argmax(-1) == y).double().mean()
    plain, reference = fit_tied_propagation(K / math.exp(log_scale), y, 2)
    assert plain.converged
    assert right > ((reference.K @ reference.a).argmax(-1) == y).double().mean() - 0.05


def parallel_task(n=20, rare=1, offset=30.0, log_scale=4.74, n_way=2, seed=0):
    """Nearly parallel rows and one rare example per class: full parallel steps overshoot."""
    generator = torch.Generator().manual_seed(seed)
    x = offset + torch.randn(n, 128, generator=generator, dtype=torch.float64)
    y = torch.zeros(n, dtype=torch.long)
    y[: rare * (n_way - 1)] = torch.arange(rare * (n_way - 1)) % (n_way - 1) + 1
    with torch.no_grad():
        return Cosine(log_scale).double()(x) + 0.5, y


@pytest.mark.parametrize("n_way", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_nearly_parallel_rows_converge_to_the_answer_of_general_propagation(n_way, seed):
    K, y = parallel_task(n_way=n_way, seed=seed)
    fit, posterior = fit_tied_propagation(K, y, n_way)
    assert fit.converged
    exact = fit_propagation(OneVsEachGP(), K, y, n_way, tolerance=1e-6)
    assert fit.log_evidence == pytest.approx(float(log_evidence(OneVsEachGP(), K, y, exact)), abs=0.05)
    mean = K @ OneVsEachGP().condition(K, y, exact.sites).a[0]
    torch.testing.assert_close(torch.softmax(posterior.f, -1), torch.softmax(mean, -1), rtol=0, atol=0.005)


@pytest.mark.parametrize("tolerance", [1e-3, 3e-2])
def test_a_converged_point_is_left_by_no_further_sweep(tolerance):
    for seed in range(5):
        K, y = parallel_task(seed=seed)
        fit, posterior = fit_tied_propagation(K, y, 2, tolerance=tolerance)
        assert fit.converged
        exact, other = fit_tied_propagation(K, y, 2, tolerance=1e-7, max_sweeps=1000)
        assert exact.converged
        assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=tolerance)
        torch.testing.assert_close(torch.softmax(posterior.f, -1), torch.softmax(other.f, -1), rtol=0, atol=tolerance)


def test_a_small_move_of_the_means_is_no_convergence_while_sites_want_to_change():
    K, y = parallel_task(n=20, rare=2, n_way=3, log_scale=6.5, seed=190)
    (fit, posterior), (exact, other) = (
        fit_tied_propagation(K, y, 3, tolerance=t, max_sweeps=1000) for t in (1e-3, 1e-7)
    )
    assert fit.converged
    assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=1e-3)
    torch.testing.assert_close(torch.softmax(posterior.f, -1), torch.softmax(other.f, -1), rtol=0, atol=1e-3)


def test_too_few_sweeps_are_not_called_converged():
    K, y = parallel_task()
    fit, _ = fit_tied_propagation(K, y, 2, max_sweeps=1)
    assert not fit.converged
    assert fit.n_sweeps == 1 + 4 + 1  # accelerated, damped, and from general propagation


@pytest.mark.parametrize(("n_way", "n_shot"), [(2, 10), (5, 5)])
def test_the_log_evidence_is_accurate_to_second_order(n_way, n_shot):
    K, y, _, _ = task(n_way, n_shot, log_scale=3.0, dim=64)
    exact = fit_tied_propagation(K, y, n_way, tolerance=1e-9, max_sweeps=400)[0].log_evidence
    assert fit_tied_propagation(K, y, n_way, tolerance=1e-2)[0].log_evidence == pytest.approx(exact, abs=1e-3)


def test_a_point_at_the_bounds_of_the_sites_is_not_called_converged():
    # Accelerated steps may run into the smallest precision of a site, where nothing moves.
    converged = [fit_tied_propagation(*parallel_task(log_scale=7.0, offset=100.0, seed=s), 2)[0] for s in range(5)]
    assert all(fit.converged for fit in converged)
    assert all(-20 < fit.log_evidence < 0 for fit in converged)


def test_few_examples_of_many_unbalanced_classes_converge():
    # With shared precisions some cavities are improper at the solution, and damped steps alone do not arrive.
    for seed in range(5):
        K, y = parallel_task(n=11, rare=2, offset=0.0, log_scale=6.0, n_way=5, seed=seed)
        assert fit_tied_propagation(K, y, 5)[0].converged
