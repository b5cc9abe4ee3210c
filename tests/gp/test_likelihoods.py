import math

import numpy as np
import pytest
import torch
from checks import assert_close
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracle import array
from scipy import stats

from polyshot.errors import InputError
from polyshot.gp import LIKELIHOODS, Gaussian, OneVsEach, Softmax

LOGITS = arrays(float, st.tuples(st.integers(1, 3), st.integers(2, 6)), elements=st.floats(-20, 20))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def table_one(name, f, c):
    """Row of the paper's Table 1, in plain Python, for a vector of logits and a label."""
    rest = [d for d in range(len(f)) if d != c]
    return {
        "softmax": lambda: math.exp(f[c]) / sum(math.exp(x) for x in f),
        "gaussian": lambda: math.prod(
            math.exp(-((2 * (d == c) - 1 - f[d]) ** 2) / 2) / math.sqrt(2 * math.pi) for d in range(len(f))
        ),
        "logistic-softmax": lambda: sigmoid(f[c]) / sum(sigmoid(x) for x in f),
        "one-vs-each": lambda: math.prod(sigmoid(f[c] - f[d]) for d in rest),
    }[name]()


@pytest.fixture(params=LIKELIHOODS)
def name(request):
    return request.param


def all_classes(likelihood, f):
    """log_likelihood of every class in turn, [..., C]."""
    n_way = f.shape[-1]
    return torch.stack([likelihood.log_likelihood(f, torch.full(f.shape[:-1], c)) for c in range(n_way)], -1)


@pytest.mark.parametrize("name", ["softmax", "gaussian", "logistic-softmax", "one-vs-each"])
def test_the_log_likelihood_is_that_of_table_one(name):
    f = np.random.default_rng(0).normal(0, 3, (20, 4))
    expected = [[math.log(table_one(name, row, c)) for c in range(4)] for row in f]
    assert_close(array(all_classes(LIKELIHOODS[name](), torch.from_numpy(f))), expected, 1e-13)


@pytest.mark.parametrize("name", LIKELIHOODS)
@given(f=LOGITS)
def test_probabilities_are_the_likelihood_normalised(name, f):
    likelihood, f = LIKELIHOODS[name](), torch.from_numpy(f)
    log_probs = likelihood.log_probs(f)
    assert_close(array(log_probs.exp().sum(-1)), np.ones(len(f)), 1e-12)
    # The Gaussian log-likelihoods reach 1e3, so their normalisation keeps 12 digits after the point.
    assert_close(array(log_probs), array(torch.log_softmax(all_classes(likelihood, f), -1)), 1e-11, floor=1.0)


@given(f=LOGITS)
def test_one_vs_each_bounds_softmax_from_below(f):
    f = torch.from_numpy(f)
    assert (all_classes(OneVsEach(), f) <= all_classes(Softmax(), f) + 1e-12).all()


def test_one_vs_each_is_softmax_for_two_classes():
    f = torch.linspace(-50, 50, 40).double().reshape(20, 2)
    assert_close(array(all_classes(OneVsEach(), f)), array(Softmax().log_all(f)), 1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [(1e4, -1e4, 0), (-1e4, -1e4, -1e4), (1e4, 1e4, 1e4), (-1e4, 1e4, 1e4)])
def test_extreme_logits_give_finite_values_and_gradients(name, dtype, row):
    f = torch.tensor([row], dtype=dtype, requires_grad=True)
    values = torch.cat([all_classes(LIKELIHOODS[name](), f), LIKELIHOODS[name]().log_probs(f)])
    values.sum().backward()
    assert torch.isfinite(values).all()
    assert torch.isfinite(f.grad).all()
    assert values.dtype == dtype
    assert float(values[1].detach().exp().sum()) == pytest.approx(1, rel=1e-5)


def test_equal_logits_however_large_give_equal_probabilities(name):
    for level in (-1e4, 0.0, 1e4):
        log_probs = LIKELIHOODS[name]().log_probs(torch.full((1, 5), level).double())
        assert_close(array(log_probs), np.full((1, 5), -np.log(5)), 1e-12)


def test_extreme_log_likelihoods_are_exact():
    f = torch.tensor([1e4, -1e4, 0.0]).double()
    assert all_classes(Softmax(), f).tolist() == [0.0, -2e4, -1e4]
    assert all_classes(OneVsEach(), f).tolist() == pytest.approx([0.0, -3e4, -1e4], abs=1e-300)
    assert all_classes(LIKELIHOODS["logistic-softmax"](), f).tolist() == pytest.approx(
        [-math.log(1.5), -1e4 - math.log(1.5), -math.log(3)]
    )


def test_logits_may_have_any_leading_dimensions(name):
    f = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(6).reshape(2, 3) % 4
    assert LIKELIHOODS[name]().log_likelihood(f, y).shape == (2, 3)
    one = LIKELIHOODS[name]().log_likelihood(f[1, 2], y[1, 2])
    assert torch.equal(one, LIKELIHOODS[name]().log_likelihood(f, y)[1, 2])


@pytest.mark.parametrize("noise", [0.25, torch.tensor(3.0)])
def test_the_gaussian_takes_any_noise_variance(noise):
    f = np.array([0.3, -1.2])
    deviation = math.sqrt(float(noise))
    expected = [stats.norm(f, deviation).logpdf(targets).sum() for targets in ((1, -1), (-1, 1))]
    likelihood = Gaussian(noise)
    assert_close(array(all_classes(likelihood, torch.from_numpy(f))), expected, 1e-7)
    assert float(likelihood.log_probs(torch.from_numpy(f)).exp().sum()) == pytest.approx(1)


@pytest.mark.parametrize("noise", [0.0, -1.0, float("nan")])
def test_a_noise_variance_that_is_not_positive_is_an_error(noise):
    with pytest.raises(InputError, match="positive"):
        Gaussian(noise)


def test_pairwise_weights_are_powers_of_the_comparisons():
    weights = torch.tensor([[9.0, 2.0, 0.5], [1.0, 9.0, 3.0], [0.1, 1.0, 9.0]])
    f = [0.4, -1.0, 2.0]
    expected = [
        sum(float(weights[c, d]) * math.log(sigmoid(f[c] - f[d])) for d in range(3) if d != c) for c in range(3)
    ]
    assert_close(array(all_classes(OneVsEach(weights), torch.tensor(f).double())), expected, 1e-7)
    unit = OneVsEach(torch.ones(3, 3)).log_all(torch.tensor(f))
    assert torch.equal(unit, OneVsEach().log_all(torch.tensor(f)))


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_an_error(bad):
    weights = torch.ones(3, 3)
    weights[0, 1] = bad
    with pytest.raises(InputError, match="weights"):
        OneVsEach(weights)


def test_a_label_without_any_comparison_is_an_error():
    with pytest.raises(InputError, match="needs a comparison"):
        OneVsEach(torch.tensor([[5.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]))


def test_weights_for_another_number_of_classes_are_an_error():
    with pytest.raises(InputError, match="3 classes"):
        OneVsEach(torch.ones(3, 3)).log_all(torch.zeros(4))


def test_every_likelihood_has_a_title_of_its_own():
    titles = [kind.title for kind in LIKELIHOODS.values()]
    assert all(titles)
    assert len(set(titles)) == len(titles)


def test_an_unknown_likelihood_is_an_error_that_lists_the_known_ones():
    with pytest.raises(InputError, match="unknown likelihood 'probit'; choose from softmax, gaussian"):
        LIKELIHOODS.find("probit")
