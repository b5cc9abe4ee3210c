import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from polyshot.errors import InputError
from polyshot.evaluation import compare_paired


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_few_episodes_are_enumerated_and_equal_sums_count_as_equal(counts: list[int]) -> None:
    # The brute force counts in whole numbers, where equal is equal; accuracies in twenty-firsts are rounded.
    signs = itertools.product([1, -1], repeat=len(counts))
    as_far = [abs(sum(s * c for s, c in zip(sign, counts, strict=True))) >= abs(sum(counts)) for sign in signs]
    result = compare_paired(0.5 + np.array(counts) / 21, np.full(len(counts), 0.5), seed=0)
    assert result.exact
    assert result.p_value == np.mean(as_far)


def test_enumeration_agrees_with_scipys_exact_test() -> None:
    d = np.random.default_rng(0).normal(0.3, size=12)
    theirs = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf)
    ours = compare_paired(d, np.zeros(12), seed=0)
    assert ours.exact
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-12)


def test_random_flips_agree_with_enumeration() -> None:
    # Twenty differences are enumerated. One more, too small to matter, makes the flips random.
    d = np.random.default_rng(2).normal(0.4, size=20)
    exact, drawn = compare_paired(d, np.zeros(20), 0), compare_paired(np.append(d, 1e-12), np.zeros(21), 0)
    assert exact.exact
    assert not drawn.exact
    error = np.sqrt(exact.p_value * (1 - exact.p_value) / 10_000)
    assert drawn.p_value == pytest.approx(exact.p_value, abs=4 * error)


def test_many_episodes_agree_with_the_t_test_and_its_interval() -> None:
    rng = np.random.default_rng(2)
    hard = rng.normal(0, 0.1, (5, 600))
    a, b = 0.802 + hard + rng.normal(0, 0.05, (5, 600)), 0.8 + hard + rng.normal(0, 0.05, (5, 600))
    ours, theirs = compare_paired(a, torch.from_numpy(b), seed=0), stats.ttest_rel(a.ravel(), b.ravel())
    interval = theirs.confidence_interval(0.95)
    assert ours.difference.estimate == pytest.approx((a - b).mean())
    assert (ours.difference.low, ours.difference.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=0.02)
    assert ours.n_episodes == 3000


def test_a_difference_beyond_doubt_has_the_smallest_p_value_that_the_flips_can_show() -> None:
    result = compare_paired(np.linspace(0.6, 0.9, 100), np.full(100, 0.5), seed=0, n_flips=999)
    assert result.p_value == 1 / 1000


def test_the_test_is_wrong_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    p = [compare_paired(rng.normal(size=30), rng.normal(size=30), rng, n_flips=199).p_value for _ in range(1000)]
    # Exact level of 5 % and 20 %; four standard errors of 1000 trials.
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 1000))
    assert np.mean(np.array(p) <= 0.2) == pytest.approx(0.2, abs=4 * np.sqrt(0.2 * 0.8 / 1000))


def test_the_same_seed_gives_the_same_and_swapping_the_runs_turns_the_sign() -> None:
    a, b = np.random.default_rng(4).random((2, 50))
    first, again, swapped = compare_paired(a, b, 7), compare_paired(a, b, 7), compare_paired(b, a, 7)
    assert first == again
    assert swapped.difference.estimate == -first.difference.estimate
    assert swapped.difference.low == pytest.approx(-first.difference.high)
    assert swapped.p_value == first.p_value


@pytest.mark.parametrize("n", [1, 100])
def test_equal_runs_do_not_differ(n: int) -> None:
    result = compare_paired(np.full(n, 0.7), np.full(n, 0.7), seed=0)
    assert (result.difference.estimate, result.p_value, result.exact) == (0, 1, True)


def test_one_episode_proves_nothing() -> None:
    result = compare_paired(np.array([0.9]), np.array([0.1]), seed=0)
    assert result.p_value == 1
    assert np.isnan([result.difference.low, result.difference.high]).all()


@pytest.mark.parametrize(
    ("a", "b", "n_flips", "message"),
    [
        (np.ones(3), np.ones(4), 10, r"same episodes; the shapes are \(3,\) and \(4,\)"),
        (np.ones(0), np.ones(0), 10, "not be empty"),
        (np.array([1, np.nan]), np.ones(2), 10, "first run contain NaN"),
        (np.ones(2), np.array([1, np.inf]), 10, "second run contain NaN or infinity"),
        (np.ones(2), np.ones(2), 0, "n_flips"),
    ],
)
def test_bad_input_is_refused(a: np.ndarray, b: np.ndarray, n_flips: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_paired(a, b, 0, n_flips)
