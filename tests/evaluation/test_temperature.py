import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, logit

from polyshot.errors import InputError
from polyshot.evaluation import expected_calibration_error, fit_temperature, log_likelihood_of_logs, scale_log_probs


def drawn(seed: int, sharpness: float, n: int = 20_000, n_way: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities that claim `sharpness` times the logits that the labels were drawn from."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, n_way))
    labels = (logits + rng.gumbel(size=(n, n_way))).argmax(1)
    return log_softmax(sharpness * logits, -1), labels


@pytest.mark.parametrize(("log_odds", "right", "n"), [(3.0, 7, 10), (0.01, 9, 10), (40.0, 51, 100), (1.0, 999, 1000)])
def test_two_classes_of_one_confidence_have_a_closed_form(log_odds: float, right: int, n: int) -> None:
    # sigmoid(log_odds / T) must be the share of right predictions.
    log_probs = np.tile(log_softmax([log_odds, 0.0]), (n, 1))
    fit = fit_temperature(log_probs, (np.arange(n) >= right).astype(int), lower=1e-4, upper=1e4)
    assert fit.value == pytest.approx(log_odds / logit(right / n), rel=2e-13)
    assert fit.bound is None


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_the_sharpness_of_drawn_labels_is_recovered_and_calibrates(sharpness: float) -> None:
    log_probs, labels = drawn(0, sharpness)
    fit = fit_temperature(torch.from_numpy(log_probs), torch.from_numpy(labels))
    assert fit.value == pytest.approx(sharpness, rel=0.03)
    held_out, truth = drawn(1, sharpness)
    assert expected_calibration_error(np.exp(scale_log_probs(held_out, fit.value)), truth) < 0.01


@given(st.integers(0, 10**6), st.integers(2, 40), st.floats(-1, 1))
def test_no_other_temperature_in_the_range_is_better(seed: int, n: int, log_scale: float) -> None:
    rng = np.random.default_rng(seed)
    log_probs, labels = log_softmax(10**log_scale * rng.normal(size=(n, 3)), -1), rng.integers(3, size=n)
    fit = fit_temperature(log_probs, labels)
    best = log_likelihood_of_logs(scale_log_probs(log_probs, fit.value), labels)
    for other in (0.01, 0.1, 0.99 * fit.value, 1.0, 1.01 * fit.value, 10.0, 100.0):
        if 0.01 <= other <= 100:
            assert log_likelihood_of_logs(scale_log_probs(log_probs, other), labels) <= best + 1e-12


def test_a_temperature_of_scaled_predictions_is_the_product() -> None:
    log_probs, labels = drawn(2, 2.0, n=500)
    once = fit_temperature(log_probs, labels).value
    assert fit_temperature(scale_log_probs(log_probs, 3.0), labels).value == pytest.approx(once / 3, rel=1e-12)
    assert fit_temperature(scale_log_probs(log_probs, once), labels).value == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("margin", [1e-3, 1.0, 500.0])
def test_all_right_stays_at_the_lower_bound_and_says_so(margin: float) -> None:
    log_probs = np.tile(log_softmax([margin, 0.0, 0.0]), (10, 1))
    fit = fit_temperature(log_probs, np.zeros(10, int), lower=0.05)
    assert (fit.value, fit.bound) == (0.05, "lower")


def test_all_right_with_probabilities_of_one_needs_no_change() -> None:
    fit = fit_temperature(np.array([[0.0, -np.inf], [-np.inf, 0.0]]), np.array([0, 1]))
    assert (fit.value, fit.bound, fit.n_impossible) == (1, None, 0)


def test_worse_than_chance_stays_at_the_upper_bound_and_says_so() -> None:
    log_probs = np.tile(log_softmax([2.0, 0.0, 0.0]), (10, 1))
    fit = fit_temperature(log_probs, np.ones(10, int), upper=50.0)
    assert (fit.value, fit.bound) == (50, "upper")


def test_uniform_predictions_keep_temperature_one() -> None:
    fit = fit_temperature(np.full((6, 3), -np.log(3)), np.arange(6) % 3)
    assert (fit.value, fit.bound) == (1, None)


def test_probabilities_of_zero_for_wrong_classes_drop_out() -> None:
    log_probs, labels = drawn(3, 2.0, n=300, n_way=3)
    padded = np.hstack([log_probs, np.full((300, 1), -np.inf)])
    with_zeros = fit_temperature(padded, labels)
    assert with_zeros.value == pytest.approx(fit_temperature(log_probs, labels).value, rel=1e-13)
    assert with_zeros.n_impossible == 0


def test_a_true_class_of_probability_zero_is_left_out_and_counted() -> None:
    log_probs, labels = drawn(4, 2.0, n=300, n_way=2)
    hopeless = np.vstack([log_probs, [[0.0, -np.inf]] * 2])
    fit = fit_temperature(hopeless, np.append(labels, [1, 1]))
    assert fit.n_impossible == 2
    assert fit.value == pytest.approx(fit_temperature(log_probs, labels).value, rel=1e-13)
    with pytest.raises(InputError, match="every true class has probability 0"):
        fit_temperature(hopeless[-2:], np.array([1, 1]))


def test_scaling_keeps_zeros_the_order_and_the_sum() -> None:
    log_probs = np.log(np.array([[[0.7, 0.2, 0.1]], [[0.5, 0.5, 1e-300]]]))
    log_probs[1, 0, 2] = -np.inf
    scaled = scale_log_probs(torch.from_numpy(log_probs).float(), 2.0)
    assert scaled.shape == (2, 1, 3)
    np.testing.assert_allclose(np.exp(scaled).sum(-1), 1, rtol=1e-15)
    expected = np.sqrt([0.7, 0.2, 0.1])
    np.testing.assert_allclose(np.exp(scaled[0, 0]), expected / expected.sum(), rtol=1e-6)
    np.testing.assert_allclose(np.exp(scaled[1, 0]), [0.5, 0.5, 0], rtol=1e-15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_temperature(np.array([[0.5, 0.5]]), np.array([0])), "sum to 1"),
        (lambda: fit_temperature(np.log([[0.5, 0.5]]), np.array([2])), "labels must lie"),
        (lambda: fit_temperature(np.full((1, 2), np.nan), np.array([0])), "NaN"),
        (lambda: fit_temperature(np.zeros((0, 2)), np.zeros(0, int)), "at least one example"),
        (lambda: fit_temperature(np.log([[0.5, 0.5]]), np.array([0]), lower=0.0), "0 < lower < upper"),
        (lambda: fit_temperature(np.log([[0.5, 0.5]]), np.array([0]), lower=2.0, upper=1.0), "0 < lower < upper"),
        (lambda: scale_log_probs(np.log([[0.5, 0.5]]), 0.0), "positive and finite"),
        (lambda: scale_log_probs(np.log([[0.5, 0.5]]), float("nan")), "positive and finite"),
        (lambda: scale_log_probs(np.array([[-np.inf, -np.inf]]), 1.0), "finite maximum"),
        (lambda: scale_log_probs(np.array([[0.0, np.nan]]), 1.0), "finite maximum"),
        (lambda: scale_log_probs(np.zeros((0, 2)), 1.0), "finite maximum"),
    ],
)
def test_bad_input_is_refused(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
