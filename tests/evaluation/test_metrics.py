import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

from polyshot.errors import InputError
from polyshot.evaluation import (
    accuracy,
    auroc,
    auroc_per_episode,
    batch_accuracy,
    bootstrap_interval,
    brier_score,
    expected_calibration_error,
    log_likelihood,
    log_likelihood_of_logs,
    maximum_calibration_error,
    reliability_bins,
    risk_coverage,
    roc_curve,
)

OF_PROBS = (accuracy, expected_calibration_error, maximum_calibration_error, brier_score, log_likelihood)
TORCHMETRICS = 1e-6  # it casts confidences to float32, and sums 400 of them


def predictions(seed: int, n: int = 400, n_way: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_way, 0.5), n)
    labels = np.array([rng.choice(n_way, p=p) for p in np.sqrt(probs) / np.sqrt(probs).sum(1, keepdims=True)])
    return probs, labels


@pytest.mark.parametrize("n_bins", [1, 10, 15])
@pytest.mark.parametrize("n_way", [2, 5])
def test_calibration_errors_and_accuracy_agree_with_torchmetrics(n_way: int, n_bins: int) -> None:
    probs, labels = predictions(0, n_way=n_way)
    p, y = torch.from_numpy(probs), torch.from_numpy(labels)
    for ours, norm in ((expected_calibration_error, "l1"), (maximum_calibration_error, "max")):
        theirs = multiclass_calibration_error(p, y, n_way, n_bins=n_bins, norm=norm).item()
        assert ours(probs, labels, n_bins) == pytest.approx(theirs, abs=TORCHMETRICS)
    assert accuracy(probs, labels) == pytest.approx(
        multiclass_accuracy(p, y, n_way, average="micro").item(), abs=TORCHMETRICS
    )


def test_log_likelihood_and_brier_score_agree_with_scikit_learn() -> None:
    probs, labels = predictions(1)
    one_hot = np.eye(5)[labels]
    assert log_likelihood(probs, labels) == pytest.approx(-sk.log_loss(labels, probs), abs=1e-12)
    assert log_likelihood_of_logs(np.log(probs), labels) == pytest.approx(-sk.log_loss(labels, probs), abs=1e-12)
    by_class = [sk.brier_score_loss(one_hot[:, c], probs[:, c]) for c in range(5)]
    assert brier_score(probs, labels) == pytest.approx(sum(by_class), abs=1e-12)


def test_worked_example_by_hand() -> None:
    # Confidences 0.9 (right), 0.8 (wrong), 0.6 (right): bins of 2 are (0, 0.5] empty and (0.5, 1] with all three.
    probs, labels = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]]), np.array([0, 1, 1])
    assert accuracy(probs, labels) == pytest.approx(2 / 3)
    assert expected_calibration_error(probs, labels, 2) == pytest.approx(2.3 / 3 - 2 / 3)
    # In bins of a quarter: (0.5, 0.75] has 0.6, right; (0.75, 1] has 0.9 and 0.8, half right.
    assert expected_calibration_error(probs, labels, 4) == pytest.approx((1 * 0.4 + 2 * 0.35) / 3)
    assert maximum_calibration_error(probs, labels, 4) == pytest.approx(0.4)
    assert brier_score(probs, labels) == pytest.approx((0.02 + 1.28 + 0.32) / 3)
    assert log_likelihood(probs, labels) == pytest.approx((np.log(0.9) + np.log(0.2) + np.log(0.6)) / 3)
    bins = reliability_bins(probs, labels, 4)
    assert bins.count.tolist() == [0, 0, 1, 2]
    np.testing.assert_allclose(bins.confidence, [np.nan, np.nan, 0.6, 0.85])
    np.testing.assert_allclose(bins.accuracy, [np.nan, np.nan, 1, 0.5])


@pytest.mark.parametrize("n_bins", [5, 10, 15, 20])
def test_a_confidence_on_a_bin_edge_belongs_to_the_bin_below(n_bins: int) -> None:
    edges = [k / n_bins for k in range(n_bins + 1) if 2 * k > n_bins]
    probs = np.array([[edge, 1 - edge] for edge in edges])
    bins = reliability_bins(probs, np.zeros(len(edges), int), n_bins)
    assert bins.edges.tolist() == [k / n_bins for k in range(n_bins + 1)]
    assert bins.count.tolist() == [0] * (n_bins - len(edges)) + [1] * len(edges)


def test_torchmetrics_puts_an_edge_into_the_bin_above_and_one_into_a_bin_of_its_own() -> None:
    # Why the test above cannot use it: 0.75 (wrong) and 0.9 (right) share its bin, 1 (right) stands alone.
    probs, labels = np.array([[0.75, 0.25], [0.9, 0.1], [1.0, 0.0]]), np.array([1, 0, 0])
    theirs = multiclass_calibration_error(torch.from_numpy(probs), torch.from_numpy(labels), 2, n_bins=4).item()
    assert theirs == pytest.approx(abs(0.75 + 0.9 - 1) / 3)
    assert expected_calibration_error(probs, labels, 4) == pytest.approx((0.75 + abs(0.9 + 1 - 2)) / 3)


def test_sure_and_all_right_is_perfect_and_sure_and_all_wrong_the_worst() -> None:
    labels = np.array([0, 2, 1, 1])
    assert [f(np.eye(3)[labels], labels) for f in OF_PROBS] == [1, 0, 0, 0, 0]
    assert [f(np.eye(3)[(labels + 1) % 3], labels) for f in OF_PROBS] == [0, 1, 1, 2, -np.inf]


def test_a_class_missing_from_the_queries_changes_no_definition() -> None:
    probs, _ = predictions(2)
    labels = np.random.default_rng(2).integers(4, size=len(probs))
    p, y = torch.from_numpy(probs), torch.from_numpy(labels)
    assert log_likelihood(probs, labels) == pytest.approx(-sk.log_loss(labels, probs, labels=range(5)), abs=1e-12)
    theirs = multiclass_calibration_error(p, y, 5, n_bins=15).item()
    assert expected_calibration_error(probs, labels) == pytest.approx(theirs, abs=TORCHMETRICS)


def test_a_probability_of_zero_is_honest_and_a_small_one_survives_as_a_logarithm() -> None:
    log_probs, labels = np.array([[0.0, -800.0], [0.0, -np.inf]]), np.array([1, 0])
    assert log_likelihood(np.exp(log_probs), labels) == -np.inf
    assert log_likelihood_of_logs(log_probs, labels) == -400
    assert log_likelihood_of_logs(log_probs, np.array([1, 1])) == -np.inf


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tensors_give_what_arrays_give(dtype: torch.dtype) -> None:
    probs, labels = predictions(3)
    tensor = torch.from_numpy(probs).to(dtype).requires_grad_()
    for metric in OF_PROBS:
        assert metric(tensor, torch.from_numpy(labels)) == metric(tensor.detach().double().numpy(), labels)


def test_bfloat16_tensors_are_read() -> None:
    assert accuracy(torch.tensor([[0.75, 0.25]], dtype=torch.bfloat16), torch.tensor([0])) == 1


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 12))
def test_order_of_examples_and_names_of_classes_do_not_matter(seed: int, n: int, n_bins: int) -> None:
    rng = np.random.default_rng(seed)
    probs, labels = rng.dirichlet(np.ones(4), n), rng.integers(4, size=n)
    rows, classes = rng.permutation(n), rng.permutation(4)
    renamed = np.argsort(classes)[labels]
    for metric in OF_PROBS:
        assert metric(probs[rows][:, classes], renamed[rows]) == pytest.approx(metric(probs, labels), abs=1e-12)
    ece = expected_calibration_error(probs, labels, n_bins)
    assert 0 <= ece <= maximum_calibration_error(probs, labels, n_bins) + 1e-15
    assert reliability_bins(probs, labels, n_bins).count.sum() == n


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        (np.ones(3) / 3, np.array([0]), r"\[n, C\] and labels \[n\]"),
        (np.ones((2, 2)) / 2, np.array([0]), r"\[n, C\] and labels \[n\]"),
        (np.ones((0, 2)), np.zeros(0, int), "at least one example"),
        (np.array([[0.5, 0.5], [np.nan, 1]]), np.array([0, 0]), "NaN, first in row 1"),
        (np.array([[1.5, -0.5]]), np.array([0]), "negative; the smallest is -0.5"),
        (np.array([[0.5, 0.5], [0.5, 0.50001]]), np.array([0, 0]), "within 1e-06; row 1 sums to 1.00001"),
        (np.array([[0.5, 0.502]], np.float32), np.array([0]), "within 0.001"),
        (np.array([[np.inf, 0]]), np.array([0]), "sums to inf"),
        (np.array([[0.5, 0.5]]), np.array([2]), r"0\.\.1; they span 2\.\.2"),
        (np.array([[0.5, 0.5]]), np.array([-1]), r"0\.\.1; they span -1\.\.-1"),
        (np.array([[0.5, 0.5]]), np.array([0.5]), "whole numbers"),
        (np.array([[0.5, 0.5]]), np.array([np.nan]), "whole numbers"),
    ],
)
def test_bad_probabilities_and_labels_are_refused(probs: np.ndarray, labels: np.ndarray, message: str) -> None:
    for metric in OF_PROBS:
        with pytest.raises(InputError, match=message):
            metric(probs, labels)


def test_single_precision_may_be_off_by_its_own_rounding() -> None:
    assert accuracy(np.array([[0.5, 0.5005]], np.float32), np.array([1])) == 1


def test_batch_accuracy_is_the_papers_and_its_interval_is_scipys() -> None:
    values = np.random.default_rng(4).random((5, 600))
    result = batch_accuracy(values)
    assert result.estimate == pytest.approx(values.mean())
    assert result.std == pytest.approx(np.sqrt(np.mean((values.mean(1) - values.mean()) ** 2)))
    expected = stats.ttest_1samp(values.ravel(), 0).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_one_batch_has_no_deviation_and_one_episode_no_interval() -> None:
    result = batch_accuracy(np.array([[0.7]]))
    assert result.estimate == 0.7
    assert np.isnan([result.std, result.low, result.high]).all()
    assert not result.bounded


def test_bootstrap_agrees_with_scipys_and_follows_the_seed() -> None:
    values = np.random.default_rng(5).beta(8, 2, 200)
    ours = bootstrap_interval(values, seed=0)
    seeded = {"random_state": np.random.default_rng(1)}  # `rng` is unknown to scipy below 1.15
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, **seeded).confidence_interval
    width = theirs.high - theirs.low
    # The end of such an interval has a Monte Carlo error of about 0.7 % of the width (2.5 % quantile of 10,000).
    assert ours.low == pytest.approx(theirs.low, abs=0.04 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.04 * width)
    assert ours.estimate == values.mean()
    assert ours == bootstrap_interval(values, seed=0) != bootstrap_interval(values, seed=1)
    narrow = bootstrap_interval(values, seed=0, level=0.5)
    assert ours.low < narrow.low < narrow.high < ours.high


def test_bootstrap_in_chunks_is_the_bootstrap_in_one_go() -> None:
    values = np.random.default_rng(6).normal(size=3000)
    means = values[np.random.default_rng(0).integers(3000, size=(1500, 3000))].mean(1)
    ours = bootstrap_interval(values, 0, n_resamples=1500)
    assert (ours.low, ours.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=1e-15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: log_likelihood_of_logs(np.array([[0.5, 0.5]]), np.array([0])), "sum to 1"),
        (lambda: reliability_bins(np.array([[0.5, 0.5]]), np.array([0]), 0), "n_bins"),
        (lambda: bootstrap_interval(np.array([]), 0), "not be empty"),
        (lambda: bootstrap_interval(np.array([1, np.inf]), 0), "NaN or infinity"),
        (lambda: bootstrap_interval(np.ones(3), 0, n_resamples=0), "n_resamples"),
        (lambda: bootstrap_interval(np.ones(3), 0, level=95.0), "level"),
        (lambda: batch_accuracy(np.ones(3)), "2 dimensions"),
        (lambda: auroc(np.ones(3), np.ones(3)), "only one kind"),
        (lambda: auroc(np.ones(3), np.array([0, 1])), "shapes are"),
        (lambda: auroc(np.array([0, np.nan]), np.array([0, 1])), "NaN"),
        (lambda: auroc(np.ones(2), np.array([0, 2])), "True or False"),
        (lambda: auroc_per_episode(np.ones((2, 2)), np.array([[0, 1], [1, 1]])), "only one kind in episode 1"),
        (lambda: roc_curve(np.ones(2), np.zeros(2)), "only one kind"),
        (lambda: risk_coverage(np.array([]), np.array([])), "not be empty"),
    ],
)
def test_other_bad_input_is_refused(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_auroc_agrees_with_scikit_learn_with_and_without_ties(decimals: int) -> None:
    rng = np.random.default_rng(7)
    outside = rng.random((40, 30)) < 0.4
    scores = (rng.normal(size=(40, 30)) + outside).round(decimals)
    theirs = [sk.roc_auc_score(o, s) for o, s in zip(outside, scores, strict=True)]
    np.testing.assert_allclose(auroc_per_episode(scores, outside), theirs, atol=1e-12)
    assert auroc(torch.from_numpy(scores).ravel(), torch.from_numpy(outside).ravel()) == pytest.approx(
        sk.roc_auc_score(outside.ravel(), scores.ravel()), abs=1e-12
    )


def test_auroc_is_one_half_or_nothing() -> None:
    outside = np.array([False, False, True])
    assert auroc(np.array([-np.inf, 0, np.inf]), outside) == 1
    assert auroc(np.zeros(3), outside) == 0.5
    assert auroc(np.array([1, 1, 0]), outside) == 0


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2).filter(
        lambda x: 0 < sum(o for _, o in x) < len(x)
    )
)
def test_auroc_counts_pairs_and_turns_over_with_the_sign(pairs: list[tuple[int, bool]]) -> None:
    scores, outside = (np.array(x) for x in zip(*pairs, strict=True))
    above = np.sign(scores[outside][:, None] - scores[~outside])
    assert auroc(scores, outside) == pytest.approx((above + 1).mean() / 2, abs=1e-12)
    assert auroc(scores, outside) + auroc(-scores, outside) == pytest.approx(1, abs=1e-12)
    curve = roc_curve(scores, outside)
    assert np.trapezoid(curve.true_positive_rate, curve.false_positive_rate) == pytest.approx(auroc(scores, outside))


@pytest.mark.parametrize("decimals", [0, 12])
def test_roc_curve_agrees_with_scikit_learn(decimals: int) -> None:
    rng = np.random.default_rng(8)
    scores, outside = rng.normal(size=200).round(decimals), rng.random(200) < 0.5
    ours = roc_curve(scores, outside)
    theirs = sk.roc_curve(outside, scores, drop_intermediate=False)
    for mine, their in zip((ours.false_positive_rate, ours.true_positive_rate, ours.threshold), theirs, strict=True):
        np.testing.assert_allclose(mine, their, atol=1e-12)


def test_risk_coverage_by_hand() -> None:
    # 0.9 right; the pair at 0.8 half right; 0.5 right. Answering 1, 2, 3, 4: 1, 1.5 / 2 in expectation, 2 / 3, 3 / 4.
    curve = risk_coverage(np.array([0.8, 0.5, 0.9, 0.8]), np.array([True, True, True, False]))
    np.testing.assert_allclose(curve.coverage, [0.25, 0.75, 1])
    np.testing.assert_allclose(curve.accuracy, [1, 2 / 3, 0.75])
    assert curve.threshold.tolist() == [0.9, 0.8, 0.5]
    assert curve.area == pytest.approx((1 + 0.75 + 2 / 3 + 0.75) / 4)


@pytest.mark.parametrize("right", [True, False])
def test_risk_coverage_of_all_right_or_all_wrong_is_flat(right: bool) -> None:
    curve = risk_coverage(np.random.default_rng(9).random(20), np.full(20, right))
    assert set(curve.accuracy) == {float(right)}
    assert curve.area == right


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40))
def test_area_under_risk_coverage_is_the_mean_over_orders_of_equal_confidences(pairs: list[tuple[int, bool]]) -> None:
    confidence, correct = (np.array(x) for x in zip(*pairs, strict=True))
    by_hand = []
    for k in range(1, len(pairs) + 1):
        lowest = np.sort(confidence)[::-1][k - 1]
        above, tied = confidence > lowest, confidence == lowest
        by_hand.append((correct[above].sum() + correct[tied].mean() * (k - above.sum())) / k)
    curve = risk_coverage(confidence, correct)
    assert curve.area == pytest.approx(np.mean(by_hand), abs=1e-12)
    assert curve.accuracy[-1] == pytest.approx(correct.mean())
    assert curve.coverage[-1] == 1
