import pytest
import torch

from polyshot.gp import conformal
from polyshot.gp.conformal import conformal_p, misfits, strangeness


def bag(n=12, n_way=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n + 1, 4, generator=generator, dtype=torch.float64)
    return X @ X.mT / 4 + 0.3, torch.arange(n) % n_way


def test_misfits_are_those_of_a_regression_refitted_without_each_example() -> None:
    K, y = bag()
    for c, scores in enumerate(misfits(K, y, 3)):
        labels = torch.cat([y, torch.tensor([c])])
        T = 2 * torch.nn.functional.one_hot(labels, 3).double() - 1
        for i in range(13):
            others = torch.arange(13) != i
            H = K[others][:, others] + conformal._NOISE * torch.eye(12)
            mean = K[i, others] @ torch.linalg.solve(H, T[others])
            best_other = max(mean[k] for k in range(3) if k != labels[i])
            torch.testing.assert_close(scores[i], best_other - mean[labels[i]])


def test_scores_do_not_depend_on_who_is_the_query() -> None:
    K, y = bag()
    labels = torch.cat([y, torch.tensor([1])])
    scores, strange = misfits(K, y, 3)[1], strangeness(K)
    order = torch.randperm(13, generator=torch.Generator().manual_seed(1))
    moved = labels[order]
    again = misfits(K[order][:, order], moved[:-1], 3)[moved[-1]]
    torch.testing.assert_close(again, scores[order])
    torch.testing.assert_close(strangeness(K[order][:, order]), strange[order])


def test_many_classes_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    K, y = bag(n_way=6)
    whole = misfits(K, y, 6)
    monkeypatch.setattr(conformal, "_NUMBERS_AT_ONCE", 1)
    torch.testing.assert_close(misfits(K, y, 6), whole)


def test_strangeness_is_the_mean_squared_distance_to_three_neighbours() -> None:
    X = torch.tensor([[0.0], [1.0], [3.0], [7.0], [50.0]], dtype=torch.float64)
    expected = torch.tensor([(1 + 9 + 49) / 3, (1 + 4 + 36) / 3, (9 + 4 + 16) / 3, (49 + 36 + 16) / 3, 0.0])
    torch.testing.assert_close(strangeness(X @ X.mT)[:4], expected[:4].double())


def test_p_is_the_share_of_scores_as_large_as_the_querys() -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0, 2.0], [0.0, 0.0, 0.0, 9.0]], dtype=torch.float64)
    assert conformal_p(scores).tolist() == [0.75, 0.25]
    counted = torch.tensor([[False, True, True, True], [True, False, False, True]])
    assert conformal_p(scores, counted).tolist() == [2 / 3, 0.5]
