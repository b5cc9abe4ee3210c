"""Two processes train to the same weights as one with the same episodes."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from polyshot.errors import InputError
from polyshot.runs.distributed import Team, find_device
from polyshot.runs.trainer import train
from polyshot.system.checkpoint import load_checkpoint
from processes import Processes
from small_runs import CHARACTERS, flags, log_lines, small, train_as_rank, weights


def assert_close(two: Path, one: Path) -> None:
    """Up to rounding; and rounding alone decides on weights that have no gradient.

    Such are biases that a normalisation or a distance removes: Adam makes whole steps of their gradients' rounding.
    So gradients (Adam's first moments) are compared everywhere, weights where there is a gradient; the running means
    follow the biases, late, so that a query of 42 at a tie may fall on the other side.
    """
    second, first = (load_checkpoint(out / "last.safetensors")[0] for out in (two, one))
    assert first.keys() == second.keys()
    n_steps = log_lines(one)[-1]["episodes"] // 4
    rms = {name: (t / (1 - 0.999**n_steps)).sqrt() for name, t in first.items() if name.endswith("exp_avg_sq")}
    largest = max(float(t.max()) for t in rms.values())
    compared, total = 0, 0
    for name, p in first.items():
        q, moment = second[name], f"optimizer.{name.removeprefix('method.')}.exp_avg_sq"
        if name.endswith("exp_avg"):
            torch.testing.assert_close(q, p, rtol=1e-3, atol=3e-5 * largest, msg=lambda m, n=name: f"{n}: {m}")
        elif name.endswith("running_var"):
            torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
        elif name.endswith("running_mean"):
            torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-3 * n_steps, msg=lambda m, n=name: f"{n}: {m}")
        elif moment in rms:
            learns = rms[moment] > 3e-4 * largest
            torch.testing.assert_close(q[learns], p[learns], rtol=1e-4, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}")
            compared, total = compared + int(learns.sum()), total + learns.numel()
    assert compared > 0.99 * total
    for a, b in zip(log_lines(two), log_lines(one), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5, abs=1e-6)
        assert a["validation_accuracy"] == pytest.approx(b["validation_accuracy"], abs=1.01 / 42)


def test_torchrun_gives_the_weights_and_statistics_of_one_process(root: Path, tmp_path: Path) -> None:
    config = small("protonet", CHARACTERS, meta_batch=4, episodes_per_epoch=4)
    train(config, tmp_path / "one", root, threads=1)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command = [
        "polyshot",
        "train",
        *flags(config),
        "--threads",
        "1",
        "--root",
        str(root),
        "--out",
        str(tmp_path / "two"),
    ]
    done = subprocess.run([*launcher, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_close(tmp_path / "two", tmp_path / "one")
    assert "blocks.3.1.running_var" in " ".join(weights(tmp_path / "two"))
    assert done.stdout == f"trained: {tmp_path / 'two'}\n"  # by one process, and the epochs' lines too
    assert [line.split("  ")[2] for line in done.stderr.splitlines() if "loss" in line] == [
        f"epoch {k}" for k in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("method", "options"), [("ove-gp", {}), ("maml", {}), ("feature-transfer", {"n_passes": 2}), ("relationnet", {})]
)
def test_two_processes_give_the_weights_of_one(
    method: str, options: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    config = small(method, CHARACTERS, options=options, meta_batch=4, epochs=2)
    train(config, tmp_path / "one", root, threads=1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [(rank, port, config, tmp_path / "two", root) for rank in range(2)]
    team = [Processes.Process(target=train_as_rank, args=args) for args in arguments]
    for process in team:
        process.start()
    for process in team:
        process.join(120)
    assert [process.exitcode for process in team] == [0, 0]
    assert_close(tmp_path / "two", tmp_path / "one")


def test_every_item_belongs_to_one_process() -> None:
    assert sorted(Team(0, 3).share(range(8)) + Team(1, 3).share(range(8)) + Team(2, 3).share(range(8))) == list(
        range(8)
    )
    alone = torch.ones(3)
    Team().add_up([alone])
    assert torch.equal(alone, torch.ones(3))


def test_a_device_that_is_not_here_is_an_error() -> None:
    assert find_device("cpu").type == "cpu"
    for name in ("abacus", "cuda:97"):
        with pytest.raises(InputError, match=f"no device '{name}'"):
            find_device(name)
