"""The skeleton of a new method in docs/methods/README.md works as it is, from outside the package."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from toy_tasks import IMAGES, VECTORS, episode

from polyshot.errors import InputError
from polyshot.methods import METHODS, FewShotMethod, build_method

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "README.md"


@pytest.fixture
def nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FewShotMethod]]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "nearest.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("nearest").Nearest
    METHODS.unregister("nearest")
    del sys.modules["nearest"]


def test_the_skeleton_is_registered_trains_and_predicts(nearest: type[FewShotMethod]) -> None:
    assert METHODS["nearest"] is nearest
    torch.manual_seed(0)
    method = build_method("nearest", IMAGES, None, {"scale": "0.5"})
    optimizer = torch.optim.Adam(method.parameter_groups(1e-3), lr=1e-3)
    task, losses = episode(IMAGES), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = method.loss(task, np.random.default_rng(0))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    prediction = method.adapt(task.support, task.n_way)(task.query.x)
    torch.testing.assert_close(prediction.log_probs.exp().sum(-1), torch.ones(9))


def test_the_skeleton_answers_with_the_nearest_example(nearest: type[FewShotMethod]) -> None:
    task = episode(VECTORS, shots=[1, 3, 2])
    log_probs = nearest(VECTORS, nn.Identity()).adapt(task.support, task.n_way)(task.query.x).log_probs
    closest = [int((task.support.x - x).square().sum(-1).argmin()) for x in task.query.x]
    assert log_probs.argmax(-1).tolist() == task.support.y[closest].tolist()


def test_the_skeleton_has_titles_and_checked_options(nearest: type[FewShotMethod]) -> None:
    assert nearest.row_title({"scale": 2.0}) == "Nearest example, scale 2.0"
    with pytest.raises(InputError, match=r"Nearest example: scale must be above 0, not -1\.0"):
        build_method("nearest", VECTORS, None, {"scale": -1})
