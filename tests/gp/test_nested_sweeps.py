"""Nested sweeps end where the accelerated ones do, with fewer factorisations."""

import pytest
import torch

from polyshot.gp import FactoredKernel, FeatureConditional, TiedConditional, fit_tied_propagation
from polyshot.gp.inference import tied_propagation


def task(n: int = 330, d: int = 6, n_way: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and labels of unbalanced classes that overlap."""
    g = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.arange(1.0, n_way + 1), n, replacement=True, generator=g)
    centres = 3 * torch.randn(n_way, d, generator=g, dtype=torch.float64)
    return centres[y] + 2 * torch.randn(n, d, generator=g, dtype=torch.float64), y


def fitted(monkeypatch, few, *arguments, **options):
    """The fit and the number of factorisations."""
    monkeypatch.setattr(tied_propagation, "_FEW", few)
    calls = []
    for kind in (TiedConditional, FeatureConditional):
        of = kind.of
        monkeypatch.setattr(kind, "of", staticmethod(lambda *x, of=of: calls.append(1) or of(*x)))
    result = fit_tied_propagation(*arguments, **options)
    monkeypatch.undo()
    return *result, len(calls)


@pytest.mark.parametrize("form", ["matrix", "each pair", "their mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_nested_sweeps_end_where_accelerated_ones_do(monkeypatch, form, weighted):
    phi, y = task()
    K = phi @ phi.mT if form == "matrix" else FactoredKernel(phi, each_pair=form == "each pair")
    weights = 0.5 + torch.arange(len(y)) % 3 if weighted else None
    options = {"tolerance": 1e-7, "example_weights": weights}
    slow, posterior, _ = fitted(monkeypatch, 10**9, K, y, 5, **options)
    fast, other, _ = fitted(monkeypatch, 0, K, y, 5, **options)
    assert slow.converged
    assert fast.converged
    torch.testing.assert_close(fast.w, slow.w, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(fast.kappa, slow.kappa, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(other.psi(), posterior.psi(), rtol=0, atol=1e-5)
    assert fast.log_evidence == pytest.approx(slow.log_evidence, abs=1e-5)


def test_at_the_usual_tolerance_they_need_half_of_the_factorisations(monkeypatch):
    phi, y = task()
    K = phi @ phi.mT
    exact, reference, _ = fitted(monkeypatch, 0, K, y, 5, tolerance=1e-7)
    slow, _, of_slow = fitted(monkeypatch, 10**9, K, y, 5)
    fast, posterior, of_fast = fitted(monkeypatch, 0, K, y, 5)
    assert (of_slow, of_fast) == (slow.n_sweeps, fast.n_sweeps)
    assert of_fast <= of_slow / 2
    assert fast.log_evidence == pytest.approx(exact.log_evidence, abs=1e-3)
    torch.testing.assert_close(torch.softmax(posterior.f, -1), torch.softmax(reference.f, -1), rtol=0, atol=2e-4)


def test_what_is_called_converged_has_its_log_evidence(monkeypatch):
    """Ten classes on a sphere, of which the evidence lacked up to 0.01."""
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        y = torch.arange(320) % 10
        x = torch.randn(10, 64, generator=g, dtype=torch.float64)[y]
        x = torch.nn.functional.normalize(x + 1.5 * torch.randn(320, 64, generator=g, dtype=torch.float64), dim=1)
        K = 100 * x @ x.mT + 0.5
        fit, _, _ = fitted(monkeypatch, 300, K, y, 10)
        exact, _, _ = fitted(monkeypatch, 300, K, y, 10, tolerance=1e-6)
        assert fit.converged
        assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=1e-3)


@pytest.mark.parametrize("kind", [TiedConditional, FeatureConditional])
def test_another_kappa_needs_no_factorisation(kind):
    phi, y = task(40, 6, 3)
    K = phi @ phi.mT if kind is TiedConditional else FactoredKernel(phi)
    g = torch.Generator().manual_seed(0)
    w = 0.1 + torch.rand(40, generator=g, dtype=torch.float64)
    one, other = (torch.randn(40, 3, generator=g, dtype=torch.float64).scatter(1, y[:, None], 0.0) for _ in range(2))
    direct, moved = kind.of(K, y, w, other), kind.of(K, y, w, one).with_kappa(other)
    torch.testing.assert_close(moved.a, direct.a, rtol=1e-12, atol=1e-12)
    assert moved.log_integral == pytest.approx(direct.log_integral, rel=1e-12)


def test_hard_tasks_of_many_examples_converge(monkeypatch):
    """Nearly parallel rows and a rare class, where full steps overshoot."""
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        x = 30 + torch.randn(310, 64, generator=g, dtype=torch.float64)
        y = (torch.arange(310) < 3).long()
        unit = x / x.norm(dim=1, keepdim=True)
        K = 100 * unit @ unit.mT + 0.5
        fast, posterior, _ = fitted(monkeypatch, 300, K, y, 2)
        slow, reference, _ = fitted(monkeypatch, 10**9, K, y, 2, tolerance=1e-6)
        assert fast.converged
        assert fast.log_evidence == pytest.approx(slow.log_evidence, abs=0.01)
        torch.testing.assert_close(torch.softmax(posterior.f, -1), torch.softmax(reference.f, -1), rtol=0, atol=1e-3)


def test_too_few_sweeps_are_not_called_converged(monkeypatch):
    phi, y = task()
    fit, _, _ = fitted(monkeypatch, 0, phi @ phi.mT, y, 5, max_sweeps=1)
    assert not fit.converged
