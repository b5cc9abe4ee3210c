"""The training loop: steps, validation, log, memory, progress and what goes wrong."""

import gc
import itertools
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.data import load_scenario
from polyshot.errors import DataError, InputError, TrainingError
from polyshot.evaluation.evaluate import evaluate
from polyshot.evaluation.protocols import Changes
from polyshot.methods import METHODS
from polyshot.runs import trainer as training
from polyshot.runs.distributed import Team
from polyshot.runs.folder import RunFolder
from polyshot.runs.history import has_ended
from polyshot.runs.trainer import Trainer, prepare, train
from polyshot.system.checkpoint import load_checkpoint
from polyshot.system.versions import package_versions
from small_runs import CHARACTERS, flags, log_lines, small, weights


def trainer_for(config: Any, root: Path) -> tuple[Trainer, Any]:
    config, method, sampler = prepare(config, load_scenario(config.scenario, root))
    return Trainer(config, method, torch.optim.SGD(method.parameters(), lr=0.0), torch.device("cpu")), sampler


@pytest.mark.parametrize("method", ["protonet", "ove-gp", "maml", "feature-transfer"])
def test_a_step_of_four_episodes_has_the_mean_gradient_and_statistics_of_four_steps(method: str, root: Path) -> None:
    together, sampler = trainer_for(small(method, CHARACTERS, meta_batch=4), root)
    start = {name: b.clone() for name, b in together.method.named_buffers()}
    together.step(sampler, Team())
    single, _ = trainer_for(small(method, CHARACTERS, meta_batch=1), root)
    gradients: list[list[Tensor]] = []
    buffers: list[dict[str, Tensor]] = []
    for _ in range(4):
        for name, b in single.method.named_buffers():
            b.copy_(start[name])
        single.step(sampler, Team())
        gradients.append([p.grad.clone() for p in single.method.parameters() if p.grad is not None])
        buffers.append({name: b.clone() for name, b in single.method.named_buffers()})
    for p, *parts in zip(together.method.parameters(), *gradients, strict=True):
        torch.testing.assert_close(p.grad, torch.stack(parts).mean(0), rtol=1e-4, atol=1e-7)
    for name, b in together.method.named_buffers():
        if b.is_floating_point():
            torch.testing.assert_close(b, torch.stack([part[name] for part in buffers]).mean(0))
    assert together.losses == [pytest.approx(np.mean(single.losses), rel=1e-5)]
    assert together.done == single.done == 4


def test_the_best_checkpoint_is_that_of_the_first_best_validation_and_patience_stops(
    embeddings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([0.5, 0.7, 0.7, 0.6])
    scales: list[float] = []

    def validate(method: Any, *_: Any) -> float:
        scales.append(method.kernel.log_scale.item())
        return next(accuracies)

    monkeypatch.setattr(training, "validate", validate)
    out = train(small("ove-gp", embeddings, epochs=50, patience=2), tmp_path / "x")
    lines = log_lines(out)
    assert [line["validation_accuracy"] for line in lines] == [0.5, 0.7, 0.7, 0.6]
    assert [line["kernel.log_scale"] for line in lines] == scales
    assert len(set(scales)) == 4
    assert weights(out, "best")["kernel.log_scale"].item() == scales[1]
    assert weights(out, "last")["kernel.log_scale"].item() == scales[3]
    method, entry = RunFolder(out).load_method()
    assert entry == lines[1]
    assert not method.training
    assert [has_ended(lines[:n], RunFolder(out).config) for n in range(5)] == [False] * 4 + [True]


def test_the_log_has_a_line_an_epoch_and_validates_when_asked(embeddings: str, tmp_path: Path) -> None:
    out = train(small("ove-gp", embeddings, epochs=5, validate_every=2), tmp_path / "x")
    lines = log_lines(out)
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["episodes"] for line in lines] == [4, 8, 12, 16, 20]
    assert ["validation_accuracy" in line for line in lines] == [False, True, False, True, True]
    assert all(math.isfinite(line["loss"]) and line["seconds"] > 0 for line in lines)
    assert all(0 <= line.get("validation_accuracy", 0) <= 1 for line in lines)


def test_the_seconds_of_an_epoch_hold_its_validation(
    embeddings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: Any) -> float:
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        return 0.5

    monkeypatch.setattr(training, "validate", work)
    out = train(small("protonet", embeddings), tmp_path / "nothing to learn")
    assert [line["seconds"] > 0.1 for line in log_lines(out)] == [True]
    out = train(small("ove-gp", embeddings, epochs=3, episodes_per_epoch=1), tmp_path / "x")
    last = load_checkpoint(out / "last.safetensors")[1]
    for name in ("seconds", "processor_seconds"):
        times = [line[name] for line in log_lines(out)]
        assert all(after - before >= 0.1 for before, after in itertools.pairwise([0, *times]))
        assert last[name] >= 0.3


def test_the_run_folder_says_all_about_the_run(embeddings: str, tmp_path: Path) -> None:
    config = small("ove-gp", embeddings, options={"objective": "ml"})
    out = train(config, tmp_path / "x", threads=1)
    folder = RunFolder(out)
    saved, space = folder.config, folder.space
    assert (saved.options["objective"], saved.options["n_chains"], saved.meta_batch) == ("ml", 20, 1)
    assert (space.shape, space.n_classes) == ((8,), 12)
    assert folder.environment == {"packages": package_versions(), "threads": 1}


def test_validation_on_kept_features_is_validation_on_images(root: Path) -> None:
    trainer, _ = trainer_for(small("protonet", CHARACTERS), root)
    sampler = training.EpisodeSampler(load_scenario(CHARACTERS, root).validation, 3, 1, 4, 0)
    arguments = (trainer.method, sampler, 12, torch.device("cpu"), Team())
    kept = training.validate(*arguments)
    type(trainer.method).embeds_once = False
    try:
        assert training.validate(*arguments) == pytest.approx(kept)
    finally:
        type(trainer.method).embeds_once = True
    assert 0 < kept < 1


@pytest.mark.parametrize("method", ["ove-gp", "maml"])
def test_a_step_keeps_nothing(method: str, embeddings: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"head": "per-class", "n_way": 2} if method == "maml" else {"n_chains": 2}
    trainer, sampler = trainer_for(small(method, embeddings, options=options, meta_batch=4), tmp_path)

    def tensors_after(n: int) -> int:
        while trainer.done < n:
            trainer.step(sampler, Team())
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    assert tensors_after(12) == tensors_after(60)


def test_a_loss_that_is_not_a_number_stops_the_run_before_the_weights_are_spoilt(
    embeddings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = METHODS["ove-gp"].losses
    count = iter(range(100))

    def spoilt(*args: Any) -> Iterator[Tensor]:
        factor = torch.nan if next(count) == 5 else 1.0
        return (loss * factor for loss in losses(*args))

    monkeypatch.setattr(METHODS["ove-gp"], "losses", spoilt)
    with pytest.raises(TrainingError, match="the loss is nan at episode 5"):
        train(small("ove-gp", embeddings), tmp_path / "x")
    assert all(t.isfinite().all() for t in load_checkpoint(tmp_path / "x" / "last.safetensors")[0].values())


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("ove-gp", {"backbone": "conv4"}, "'conv4' does not work for embeddings"),
        ("ove-gp", {"meta_batch": 3}, r"episodes_per_epoch \(4\) must be a multiple of meta_batch \(3\)"),
    ],
)
def test_what_cannot_be_trained_is_said_before_a_folder_is_made(
    method: str, settings: dict[str, Any], message: str, embeddings: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train(small(method, embeddings, **settings), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_split_file_of_the_docs_can_be_trained_on(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "data.md"
    splits = page.read_text("utf-8").partition("```json\n")[2].partition("```")[0]
    names = [name for members in json.loads(splits).values() for name in members]
    labels = np.repeat(np.arange(len(names)), 4)
    np.savez(tmp_path / "own.npz", X=np.eye(4)[labels % 4], labels=labels, class_names=np.array(names))
    (tmp_path / "own_splits.json").write_text(splits)
    scenario = f"embeddings:{tmp_path / 'own.npz'}"
    run = train(small("protonet", scenario), tmp_path / "run")
    evaluate([run], ["accuracy"], Changes(episodes=1, batches=1, queries=1), quiet=True)


def test_only_a_method_that_trains_on_batches_needs_a_batch_of_examples(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(10), 3)  # 5 training classes, 15 examples
    np.savez(tmp_path / "few.npz", X=np.random.default_rng(0).normal(size=(30, 4)), labels=labels)
    scenario = f"embeddings:{tmp_path / 'few.npz'}"
    config, _, sampler = prepare(small("ove-gp", scenario), load_scenario(scenario))
    assert sampler[0].support.x.shape == (2, 4)
    assert config.episodes_per_epoch == 4
    with pytest.raises(DataError, match="has 15 examples, fewer than a batch of 16"):
        prepare(small("feature-transfer", scenario), load_scenario(scenario))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "ove", "--scenario", "glyphs"], "unknown method 'ove'"),
        (["--method", "ove-gp", "--scenario", "mnist"], "scenario 'mnist'"),
        (["--method", "ove-gp", "--scenario", "glyphs", "--option", "chains=3"], "unknown setting 'chains'"),
        (["--method", "ove-gp", "--scenario", "glyphs", "--option", "n_chains"], "--option takes NAME=VALUE"),
        (["--method", "protonet", "--scenario", "glyphs", "--kernel", "rbf"], "protonet: unknown setting 'kernel'"),
        (["--method", "ove-gp", "--scenario", "glyphs", "--device", "abacus"], "no device 'abacus'"),
        (["--method", "ove-gp", "--scenario", "glyphs", "--shots", "0"], "shots must be a whole number, at least 1"),
        (["--scenario", "glyphs"], "method must be given"),
        ([], "method and scenario must be given"),
        (["no.toml"], "no.toml: cannot be read"),
    ],
)
def test_mistakes_on_the_command_line_are_messages(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", *arguments, "--out", str(tmp_path / "x")])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert not (tmp_path / "x").exists()


def test_progress_is_plain_lines_where_there_is_no_terminal(embeddings: str, tmp_path: Path) -> None:
    command = ["train", *flags(small("ove-gp", embeddings)), "--out", str(tmp_path / "x")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"trained: {tmp_path / 'x'}\n"
    first, *lines = result.stderr.splitlines()
    assert "0/12  (the first step after an installation compiles" in first
    assert [line.split("  ")[1] for line in lines] == ["4/12", "8/12", "12/12"]
    assert all("\x1b" not in line and "validation_accuracy" in line and "s left" in line for line in lines)


def test_methods_are_listed_with_their_options() -> None:
    result = CliRunner().invoke(app, ["methods"])
    assert result.exit_code == 0
    assert all(f"{name}: " in result.output for name in METHODS)
    assert "objective = pl   (ml | pl)" in result.output


def test_a_method_with_nothing_to_learn_is_validated_saved_and_evaluated(embeddings: str, tmp_path: Path) -> None:
    for _ in range(2):  # the second time there is nothing left to do
        train(small("protonet", embeddings), tmp_path / "prototypes")
    (entry,) = log_lines(tmp_path / "prototypes")
    assert entry["episodes"] == 0
    assert entry["validation_accuracy"] > 0.3
    (result,) = evaluate(
        [tmp_path / "prototypes"], ["accuracy"], Changes(episodes=3, batches=1, queries=4), quiet=True
    ).results
    assert result.trained_episodes == 0
