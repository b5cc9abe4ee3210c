import mpmath
import numpy as np
import pg_reference
import pytest
import torch
from checks import FALSE_ALARM, assert_mean
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from polyshot.errors import InputError
from polyshot.gp import polya_gamma, polya_gamma_mean, sample_polya_gamma

TILTS = [0.0, 0.1, 1.0, 4.0, 10.0, 50.0, 150.0, 200.0, 500.0, 1000.0]
COUNTS = [1, 2, 5, 20]


@pytest.fixture(scope="module", params=[(b, c) for b in COUNTS for c in TILTS], ids=lambda p: f"PG({p[0]}, {p[1]:g})")
def sample(request):
    b, c = request.param
    draws = sample_polya_gamma(b, torch.full((30_000,), c, dtype=torch.float64), seed=1)
    return b, c, draws.numpy()


def test_draws_have_the_exact_mean(sample):
    b, c, draws = sample
    assert_mean(draws, pg_reference.mean(b, c))


def test_draws_have_the_exact_variance(sample):
    b, c, draws = sample
    assert_mean((draws - pg_reference.mean(b, c)) ** 2, pg_reference.variance(b, c))


def test_draws_have_the_exact_distribution(sample):
    b, c, draws = sample
    assert stats.kstest(draws, lambda x: pg_reference.cdf(x, b, c)).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("b", "c"), [(1, 0.0), (2, 0.1), (5, 4.0), (20, 1.0), (20, 50.0), (1, 1000.0)])
def test_the_reference_distribution_has_the_exact_moments(b, c):
    mean, sd = pg_reference.mean(b, c), np.sqrt(pg_reference.variance(b, c))
    # The integral of 1 - F is the mean; beyond 9 standard deviations F is one to 1e-7 of them.
    x = np.linspace(1e-6 * mean, mean + 9 * sd, 20_001)
    tail = 1 - pg_reference.cdf(x, b, c)
    assert integrate.simpson(tail, x=x) + x[0] == pytest.approx(mean, rel=1e-4 * sd / mean)
    second = 2 * integrate.simpson(x * tail, x=x)
    assert second - mean**2 == pytest.approx(sd**2, rel=1e-3)


@pytest.mark.parametrize("c", [3.0, 120.0, 300.0])
def test_the_sign_of_the_tilt_does_not_matter(c):
    plus, minus = (sample_polya_gamma(1, torch.full((20_000,), s * c).double(), seed=s + 5).numpy() for s in (1, -1))
    assert stats.ks_2samp(plus, minus).pvalue > FALSE_ALARM
    assert_mean(minus, pg_reference.mean(1, c))


def test_tilts_on_both_sides_of_every_internal_limit_may_be_mixed():
    tilts = torch.tensor([0.0, 99.0, 101.0, 177.0, 179.0, -5.0, 1e4, 1e6]).double()
    draws = sample_polya_gamma(1, tilts.expand(20_000, -1), seed=3)
    assert_mean(draws, [pg_reference.mean(1, float(c)) for c in tilts])


@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 0, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_draws_keep_shape_and_dtype(shape, dtype, as_tensor):
    b = torch.full(shape, 2) if as_tensor else 2
    draws = sample_polya_gamma(b, torch.full(shape, 1.5, dtype=dtype), seed=0)
    assert draws.shape == shape
    assert draws.dtype == dtype
    assert (draws > 0).all()


def test_tensor_counts_belong_to_their_own_entries():
    b = torch.tensor([[0, 1], [3, 20]])
    draws = sample_polya_gamma(b.expand(20_000, 2, 2), torch.full((20_000, 2, 2), 2.0), seed=0)
    assert (draws[:, 0, 0] == 0).all()
    assert_mean(draws.double(), b.numpy() * pg_reference.mean(1, 2.0), slack=1e-6)  # float32 rounds the draws


def test_a_view_gives_the_same_draws_as_its_copy():
    c = torch.linspace(-200, 200, 60).double().reshape(6, 10).T
    assert not c.is_contiguous()
    for b in (1, 3):
        assert torch.equal(sample_polya_gamma(b, c, seed=7), sample_polya_gamma(b, c.contiguous(), seed=7))


def test_seeds_reproduce_and_a_generator_advances():
    c = torch.ones(50)
    assert torch.equal(sample_polya_gamma(1, c, seed=3), sample_polya_gamma(1, c, seed=3))
    assert not torch.equal(sample_polya_gamma(1, c, seed=3), sample_polya_gamma(1, c, seed=4))
    rng = np.random.default_rng(3)
    first, second = sample_polya_gamma(1, c, rng), sample_polya_gamma(1, c, rng)
    assert torch.equal(first, sample_polya_gamma(1, c, seed=3))
    assert not torch.equal(first, second)


def test_a_tilt_that_needs_a_gradient_is_accepted():
    assert not sample_polya_gamma(1, torch.ones(3, requires_grad=True), seed=0).requires_grad


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("b", [1, 3])
def test_a_tilt_that_is_not_finite_is_an_error(bad, b):
    with pytest.raises(InputError, match="finite"):
        sample_polya_gamma(b, torch.tensor([1.0, bad]), seed=0)


@pytest.mark.parametrize("b", [-1, torch.tensor([1, -2])])
def test_a_negative_count_is_an_error(b):
    with pytest.raises(InputError, match="b must be"):
        sample_polya_gamma(b, torch.zeros(2), seed=0)


@given(c=st.floats(-1e3, 1e3), b=st.integers(0, 20))
def test_the_mean_is_exact_everywhere(c, b):
    assert float(polya_gamma_mean(float(b), torch.tensor(c, dtype=torch.float64))) == pytest.approx(
        pg_reference.mean(b, c), rel=1e-13
    )


@pytest.mark.parametrize("c", [0.0, 1e-300, 1e-8, -1e-3, 0.00999, 0.01001, 0.1, -2.0, 50.0, 1000.0])
def test_the_mean_has_the_exact_derivative(c):
    x = torch.tensor(c, dtype=torch.float64, requires_grad=True)
    polya_gamma_mean(1.0, x).backward()
    with mpmath.workdps(60):
        exact = mpmath.diff(lambda t: mpmath.tanh(t / 2) / (2 * t) if t else mpmath.mpf(1) / 4, mpmath.mpf(c))
    # The series below |c| = 0.01 stops at c^4: its slope misses a term of 1.3e-3 c^5, 3e-10 of the slope.
    assert float(x.grad) == pytest.approx(float(exact), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("c", [0.0, 0.05, 1.0, 10.0, 40.0, 99.0])
def test_what_the_series_leaves_to_a_gamma_variable_does_not_change_the_skewness(c):
    k = np.arange(1_000_000) + 0.5
    w = 1 / (2 * (np.pi * k) ** 2 + c**2 / 2)  # cumulants of PG(b, c): b (n - 1)! sum w^n
    drawn = w[: polya_gamma._series_terms(c)]
    mean, variance = pg_reference.mean(1, c) - drawn.sum(), pg_reference.variance(1, c) - (drawn**2).sum()
    of_gamma = 2 * variance**2 / mean
    assert abs(2 * (drawn**3).sum() + of_gamma - 2 * (w**3).sum()) < 1e-6 * (w**2).sum() ** 1.5


def test_one_tensor_may_hold_counts_of_every_size():
    b = torch.tensor([0, 1, 16, 17, 1000, 10**6, 17, 10**6]).expand(4000, -1)
    c = torch.tensor([1.0, 2.0, 3.0, 0.0, 8.0, 0.5, 150.0, 200.0]).double().expand(4000, -1)
    draws = sample_polya_gamma(b, c, seed=0).numpy()
    pairs = [(int(n), float(t)) for n, t in zip(b[0], c[0], strict=True)]
    assert not draws[:, 0].any()
    assert_mean(draws[:, 1:], [pg_reference.mean(*pair) for pair in pairs[1:]])
    squares = (draws[:, 1:] - [pg_reference.mean(*pair) for pair in pairs[1:]]) ** 2
    assert_mean(squares, [pg_reference.variance(*pair) for pair in pairs[1:]])
