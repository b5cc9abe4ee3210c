import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy_tasks import VECTORS, episode

from polyshot.errors import InputError
from polyshot.methods.matchingnet import MatchingNet
from polyshot.task import LabelledSet


def lstm_step(x: Tensor, h: Tensor, c: Tensor, weights: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The LSTM's equations, for one or many rows; gates in PyTorch's order i, f, g, o."""
    w_x, w_h, b_x, b_h = weights
    i, f, g, o = (x @ w_x.T + b_x + h @ w_h.T + b_h).chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def dense_log_probs(method: MatchingNet, support: LabelledSet, query: Tensor, n_way: int, n_reads: int) -> Tensor:
    """Vinyals et al.'s formulas, one step after another, for a support set sorted by class."""
    weights = dict(method.named_parameters())
    g = support.x.clone()
    for suffix, order in (("", range(len(g))), ("_reverse", reversed(range(len(g))))):
        lstm = tuple(
            weights[f"support_lstm.{key}_l0{suffix}"] for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h = c = torch.zeros_like(support.x[0])
        for i in order:
            h, c = lstm_step(support.x[i], h, c, lstm)
            g[i] += h
    lstm = tuple(weights[f"query_lstm.{key}"] for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    f, c = query, torch.zeros_like(query)
    for _ in range(n_reads):
        attention = torch.stack([(f @ g_i) for g_i in g], dim=-1).softmax(-1)
        h, c = lstm_step(torch.cat([query, attention @ g], -1), f, c, lstm)
        f = h + query
    return attend(f, g, support.y, n_way, method.scale)


def attend(f: Tensor, g: Tensor, y: Tensor, n_way: int, scale: float) -> Tensor:
    """log of sum_i a(f, g_i) y_i."""
    attention = (scale * torch.cosine_similarity(f[:, None], g, dim=-1)).softmax(-1)
    return (attention @ torch.eye(n_way, dtype=f.dtype)[y]).log()


@pytest.mark.parametrize("n_reads", [1, 4, None])
def test_full_context_embeddings_are_the_papers_formulas(n_reads: int | None) -> None:
    support, query, n_way = episode(VECTORS, 3, [1, 3, 2])
    torch.manual_seed(0)
    method = MatchingNet(VECTORS, n_reads=n_reads, scale=5.0)
    with torch.no_grad():
        expected = dense_log_probs(method, support, query.x, n_way, n_reads or len(support.y))
    torch.testing.assert_close(method.adapt(support, n_way)(query.x).log_probs, expected, rtol=1e-4, atol=1e-5)
    loss = method.loss(episode(VECTORS, 3, [1, 3, 2]), np.random.default_rng(0))
    torch.testing.assert_close(loss, -expected[range(len(query.y)), query.y].mean(), rtol=1e-4, atol=1e-5)


def test_without_full_context_it_is_attention_over_the_features() -> None:
    support, query, n_way = episode(VECTORS, 3, [1, 3, 2])
    backbone = nn.Linear(12, 5)
    method = MatchingNet(VECTORS, backbone, fce=False, scale=3.0)
    with torch.no_grad():
        expected = attend(backbone(query.x), backbone(support.x), support.y, n_way, 3.0)
    torch.testing.assert_close(method.adapt(support, n_way)(query.x).log_probs, expected)
    assert {name.split(".")[0] for name, _ in method.named_parameters()} == {"backbone"}


def test_the_order_of_the_support_set_matters_only_within_classes() -> None:
    support, query, n_way = episode(VECTORS, 3, 2)
    torch.manual_seed(0)
    method = MatchingNet(VECTORS)
    mixed = torch.tensor([0, 2, 4, 1, 3, 5])
    sorted_by_class, mixed_up = (
        method.adapt(LabelledSet(support.x[rows], support.y[rows]), n_way)(query.x).log_probs
        for rows in (torch.arange(6), mixed)
    )
    torch.testing.assert_close(sorted_by_class, mixed_up)


def test_log_probabilities_stay_finite_where_probabilities_underflow() -> None:
    support, query, n_way = episode(VECTORS)
    log_probs = MatchingNet(VECTORS, scale=1e4).adapt(support, n_way)(query.x).log_probs
    assert bool(torch.isfinite(log_probs).all())
    assert float(log_probs.min()) < -200


def test_no_reading_is_an_input_error() -> None:
    with pytest.raises(InputError, match="MatchingNet: n_reads must be above 0, not 0"):
        MatchingNet(VECTORS, n_reads=0)
