import torch

from polyshot.gp import Queries, SiteMixture, fit_tied_propagation, fit_with_none, grown_sites
from polyshot.gp.inference.leave_one_out import leave_one_out_likelihood, leave_one_out_log_probs


def task(n=12, n_way=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return X @ X.mT, torch.arange(n) % n_way


def test_weights_and_covariance_are_those_of_the_conditional_and_chains_are_averaged() -> None:
    K, y = task()
    fit, conditional = fit_tied_propagation(K, y, 3)
    one = SiteMixture(K, y, fit.sites, tied=True)
    torch.testing.assert_close(one.weights(), conditional.a)
    same = SiteMixture(K, y, type(fit.sites)(*(x.repeat(2, 1, 1) for x in fit.sites)), tied=False)
    torch.testing.assert_close(same.weights(), conditional.a)
    expected = conditional.query(K[:5], K.diagonal()[:5])
    for mixture in (one, same):
        parts = [Queries(slice(0, 2), K[:2], K.diagonal()[:2]), Queries(slice(2, 5), K[2:5], K.diagonal()[2:5])]
        torch.testing.assert_close(mixture.covariance(expected.mean[0], lambda _, p=parts: p), expected.covariance[0])


def test_grown_sites_keep_what_was_there_and_have_none_at_the_own_class() -> None:
    K, y = task()
    sites = fit_tied_propagation(K, y, 3)[0].sites
    places, labels = torch.tensor([0, 2, 3]), torch.cat([torch.tensor([0, 2, 3])[y], torch.tensor([1, 1])])
    w, kappa = grown_sites(sites, labels, 4, places)
    assert (w.shape, kappa.shape) == ((14,), (14, 4))
    torch.testing.assert_close(kappa[:12][:, places], sites.kappa[0])
    torch.testing.assert_close(kappa[:12, 1], sites.kappa[0].sum(-1) / 2)
    assert bool((kappa.gather(1, labels[:, None]) == 0).all())
    assert bool((w > 0).all())


def test_the_class_without_an_example_ends_where_a_cold_start_does() -> None:
    K, y = task()
    fit, weights = fit_with_none(K, y, fit_tied_propagation(K, y, 3)[0].sites)
    assert fit.converged
    torch.testing.assert_close(weights, fit_tied_propagation(K, y, 4)[1].a, atol=2e-2, rtol=2e-2)


def test_the_leave_one_out_likelihood_adds_up_the_log_probabilities_of_the_labels() -> None:
    K, y = task()
    y[y == 2] = torch.where(torch.arange(4) == 0, 2, 1)  # one example is alone in its class and has no weight
    total, fit = leave_one_out_likelihood(K, y, 3, power=2.0)
    posterior = fit_tied_propagation(K, y, 3, tolerance=3e-2, max_sweeps=25)[1]
    rows = torch.nonzero(y != 2).flatten()
    shots = y.bincount()[y].double()
    expected = 0.0
    for part, log_probs in leave_one_out_log_probs(fit, posterior, rows):
        torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(len(part), dtype=torch.float64))
        expected += float((log_probs[torch.arange(len(part)), y[part]] * (1 - 1 / shots[part]) ** 2).sum())
    assert abs(total - expected) < 1e-9
