"""Expectations of the sigmoid under a Gaussian, against quadrature."""

import gaussian_sigmoid
import numpy as np
import pytest
import torch
from checks import assert_close, central_difference
from oracle import array
from scipy import integrate, stats
from scipy.special import expit, log_expit
from tasks import tensor

from polyshot.gp.sigmoid_expectations import MIXTURE_P, MIXTURE_S, expected_log_sigmoid, log_expected_sigmoid

MEANS = np.array([-60.0, -40, -30, -20, -12, -6, -2, -0.3, 0, 0.3, 2, 6, 12, 20, 30, 40, 60])
VARIANCES = np.array([0.0, 1e-4, 0.01, 0.1, 1, 4, 10, 20, 30, 40, 60, 100, 1000, 1e4])
GRID = tuple(part.ravel() for part in np.meshgrid(MEANS, VARIANCES))


@pytest.mark.parametrize("mean", [-8.0, -1.0, 0.5, 3.0])
@pytest.mark.parametrize("variance", [0.3, 4.0, 50.0])
def test_the_reference_agrees_with_adaptive_and_gauss_hermite_quadrature(mean, variance):
    density = stats.norm(mean, np.sqrt(variance)).pdf
    reach = 12 * np.sqrt(variance)
    options = {"epsabs": 1e-13, "epsrel": 1e-11, "limit": 500, "points": [mean]}
    sigmoid, _ = integrate.quad(lambda x: expit(x) * density(x), mean - reach, mean + reach, **options)
    log_sigmoid, _ = integrate.quad(lambda x: log_expit(x) * density(x), mean - reach, mean + reach, **options)
    assert gaussian_sigmoid.log_expected_sigmoid(mean, variance) == pytest.approx(np.log(sigmoid), abs=1e-9)
    assert gaussian_sigmoid.expected_log_sigmoid(mean, variance) == pytest.approx(log_sigmoid, abs=1e-9)
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    hermite = weights / weights.sum() @ expit(mean + np.sqrt(variance) * nodes)
    # 200 nodes are spaced 0.16 deviations apart: wider than the sigmoid at a deviation of 7.
    assert hermite == pytest.approx(sigmoid, abs=1e-10 if variance < 10 else 1e-5)


def test_the_expected_sigmoid_is_good_to_2e8_for_all_means_and_variances():
    actual = array(log_expected_sigmoid(tensor(GRID[0]), tensor(GRID[1])))
    exact = np.vectorize(gaussian_sigmoid.log_expected_sigmoid)(*GRID)
    assert np.abs(np.exp(actual) - np.exp(exact)).max() < 2e-8
    # Its logarithm is then good to 2e-8 / probability; far in the tail, where the mean is minus the variance, to 0.02.
    assert np.abs(actual - exact).max() < 0.02


def test_the_expected_log_sigmoid_is_good_to_5e8_for_all_means_and_variances():
    actual = array(expected_log_sigmoid(tensor(GRID[0]), tensor(GRID[1])))
    exact = np.vectorize(gaussian_sigmoid.expected_log_sigmoid)(*GRID)
    assert np.abs(actual - exact).max() < 5e-8


@pytest.mark.parametrize("function", [log_expected_sigmoid, expected_log_sigmoid])
@pytest.mark.parametrize("mean", [-30.0, -4.0, -0.5, 0.0, 1.0, 8.0])
@pytest.mark.parametrize("variance", [0.5, 3.0, 20.0])
def test_the_derivatives_of_the_expectations_are_finite_differences_of_the_reference(function, mean, variance):
    m, v = torch.tensor([mean, variance], dtype=torch.float64, requires_grad=True)[:, None].unbind()
    slopes = torch.autograd.grad(function(m, v).sum(), (m, v))
    reference = getattr(gaussian_sigmoid, function.__name__)
    expected = [
        central_difference(lambda t: reference(mean + t, variance), 1e-3),
        central_difference(lambda t: reference(mean, variance + t), 1e-3),
    ]
    # The mixture is smooth on the scale of the sigmoid, so its slope is off no more than a few times its value.
    assert_close([float(s) for s in slopes], expected, 1e-6, floor=1.0)


@pytest.mark.parametrize("mean", [-1e4, -1e3, 0.0, 1e3, 1e4])
@pytest.mark.parametrize("variance", [0.0, 1e-8, 1e2, 1e8, 1e16])
def test_the_expectations_and_their_gradients_are_finite_at_the_extremes(mean, variance):
    for function in (log_expected_sigmoid, expected_log_sigmoid):
        m, v = (torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (mean, variance))
        value = function(m, v)
        value.sum().backward()
        assert torch.isfinite(torch.stack([value.detach(), m.grad, v.grad])).all()
        assert float(value.detach()) <= 0


def test_an_entry_has_the_same_bits_wherever_it_stands():
    """Entries are computed in blocks; no answer may depend on what else is asked."""
    m, v = (tensor(part) for part in GRID)
    together = log_expected_sigmoid(m, v)
    alone = torch.cat([log_expected_sigmoid(m[i : i + 1], v[i : i + 1]) for i in range(len(m))])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("mean", [-3.0, 0.0, 0.7, 25.0])
@pytest.mark.parametrize("variance", [0.0, 1.0, 300.0])
def test_the_compiled_loop_has_the_digits_of_the_library_functions(mean, variance):
    """Its own exp and erfc are as good as scipy's."""
    m, tail = (-(mean + variance), True) if mean + variance < 0 else (mean, False)
    expected = np.log(MIXTURE_P @ stats.norm.cdf(m / np.sqrt(variance + 1 / MIXTURE_S**2)))
    expected += mean + variance / 2 if tail else 0.0
    actual = float(log_expected_sigmoid(tensor([mean]), tensor([variance])))
    assert actual == pytest.approx(expected, rel=1e-13, abs=1e-14)
