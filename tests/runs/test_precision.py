"""Training in mixed precision."""

from pathlib import Path

import pytest
import torch

from polyshot.data import load_scenario
from polyshot.methods.backbones import Conv4
from polyshot.runs.precision import train_in_bfloat16
from polyshot.runs.trainer import prepare, train
from small_runs import CHARACTERS, log_lines, small


def test_only_training_is_in_bfloat16() -> None:
    torch.manual_seed(0)
    exact, mixed = Conv4(1), Conv4(1)
    mixed.load_state_dict(exact.state_dict())
    train_in_bfloat16(mixed)
    x = torch.randn(20, 1, 28, 28)
    trained, reference = mixed(x), exact(x)
    assert trained.dtype == torch.float32
    assert 0 < float((trained - reference).detach().abs().max()) < 0.1  # bfloat16 has three significant digits
    for network in (exact, mixed):
        network(x).square().mean().backward()
    for (name, p), q in zip(mixed.named_parameters(), exact.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert p.dtype == p.grad.dtype == torch.float32
        if "0.bias" not in name:  # normalisation takes the convolutions' biases away
            assert torch.cosine_similarity(p.grad.flatten(), q.grad.flatten(), dim=0) > 0.98
    mixed.load_state_dict(exact.state_dict())
    assert torch.equal(mixed.eval()(x), exact.eval()(x))


@pytest.mark.parametrize("method", ["ove-gp", "maml"])
def test_every_kind_of_method_trains_in_bfloat16(method: str, root: Path, tmp_path: Path) -> None:
    config = small(method, CHARACTERS, precision="bfloat16")
    train(config, tmp_path / "mixed", root, quiet=True)
    train(small(method, CHARACTERS), tmp_path / "exact", root, quiet=True)
    losses = [[line["loss"] for line in log_lines(tmp_path / name)] for name in ("mixed", "exact")]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)
    _, network, _ = prepare(config, load_scenario(config.scenario, root))
    assert {p.dtype for p in network.parameters()} == {torch.float32}
