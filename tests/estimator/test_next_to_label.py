import numpy as np
import pytest
import torch
from blobs import blobs

from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier
from polyshot.gp import most_informative


def task(n_way=4, per_class=20, dim=128, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_way, dim))
    draw = lambda n: centres.repeat(n, 0) + 1.5 * rng.normal(size=(n_way * n, dim))  # noqa: E731
    return draw(1), np.arange(n_way), draw(per_class), np.arange(n_way).repeat(per_class)


def test_the_next_point_lowers_the_weighted_variance_most_by_conditioning_on_every_candidate():
    rng = np.random.default_rng(0)
    A = torch.from_numpy(rng.normal(size=(12, 12)))
    K, weights, noise = A @ A.mT / 12, torch.from_numpy(rng.uniform(size=7)), 0.3
    targets, none = torch.tensor([3, 1, 4, 11, 5, 9, 2]), torch.zeros(12, dtype=torch.bool)

    def left(chosen):
        inverse = torch.linalg.inv(K[chosen][:, chosen] + noise * torch.eye(len(chosen), dtype=K.dtype))
        return float(weights @ (K - K[:, chosen] @ inverse @ K[chosen]).diagonal()[targets])

    chosen = most_informative(lambda rows: K[:, rows], K.diagonal(), targets, weights, none, torch.arange(12), 5, noise)
    for i, best in enumerate(chosen):
        others = [j for j in range(12) if j not in chosen[:i]]
        assert best == min(others, key=lambda j: left([*chosen[:i], j]))


def test_a_batch_has_no_copies_while_other_rows_are_left_and_then_the_copies():
    X, y, pool, _ = task(per_class=2)
    copies = np.concatenate([pool, pool, pool[:1], X[:2]])
    rows = OneVsEachClassifier().fit(X, y).next_to_label(copies, len(copies))
    assert sorted(rows) == list(range(len(copies)))
    assert len(np.unique(copies[rows[: len(pool)]], axis=0)) == len(pool)
    assert not {17, 18} & set(rows[: len(pool)])  # copies of labelled examples


def test_the_choice_is_the_same_again_and_does_not_depend_on_the_order_of_the_pool():
    X, y, pool, _ = task()
    model = OneVsEachClassifier().fit(X, y)
    first = model.next_to_label(pool, 8)
    np.testing.assert_array_equal(model.next_to_label(pool, 8), first)
    order = np.random.default_rng(1).permutation(len(pool))
    np.testing.assert_array_equal(order[model.next_to_label(pool[order], 8)], first)


def test_classes_without_a_label_are_found_sooner_than_at_random():
    found, at_random = [], []
    for seed in range(5):
        X, y, pool, hidden = task(n_way=8, seed=seed)
        model = OneVsEachClassifier().fit(X[:2], y[:2])
        found.append(len(np.unique(hidden[model.next_to_label(pool, 8)])))
        rng = np.random.default_rng(seed)
        at_random += [len(np.unique(rng.permutation(hidden)[:8])) for _ in range(20)]
    assert np.mean(found) > np.mean(at_random) + 0.5


def test_rows_of_no_class_are_set_aside_if_no_new_classes_are_wanted():
    X, y, pool, hidden = task(n_way=8)
    model = OneVsEachClassifier().fit(X[:4].repeat(3, 0) + 0.1, y[:4].repeat(3))
    strange = [int(np.sum(hidden[model.next_to_label(pool, 10, new_classes=new)] >= 4)) for new in (True, False)]
    assert strange[1] < strange[0]


def test_a_model_with_a_pool_and_a_pool_larger_than_the_targets_choose_too():
    X, y, pool, _ = task(per_class=150)
    model = OneVsEachClassifier(unlabeled=-1).fit(np.concatenate([X, pool[:50]]), np.r_[y, np.full(50, -1)])
    assert len(set(model.next_to_label(pool, 20))) == 20


@pytest.mark.parametrize("kernel", ["rbf", "linear", "cosine"])
def test_one_row_and_low_dimensions(kernel):
    X, y, queries, *_ = blobs()
    model = OneVsEachClassifier(kernel).fit(X, y)
    assert model.next_to_label(queries[:1]).tolist() == [0]
    assert len(set(model.next_to_label(queries, 5))) == 5


def test_what_cannot_be_chosen_is_refused():
    X, y, pool, _ = task()
    model = OneVsEachClassifier().fit(X, y)
    for n in (0, -1, 1.5, True, "2"):
        with pytest.raises(InputError, match="n must be a whole number"):
            model.next_to_label(pool, n)
    with pytest.raises(InputError, match="cannot choose 81 of 80 rows"):
        model.next_to_label(pool, 81)
