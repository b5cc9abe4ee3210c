import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.data import ClassSet
from polyshot.data.transforms import identity
from polyshot.errors import InputError
from polyshot.runs.config import TrainingConfig, read_toml


def classes(name: str, n_each: int = 20) -> ClassSet:
    y = torch.from_numpy(np.repeat(np.arange(3), n_each))
    return ClassSet(name, torch.zeros(len(y), 1), y, ("a", "b", "c"), identity)


def completed(
    method: str = "ove-gp", name: str = "cub train", shape: tuple[int, ...] = (3, 84, 84), **settings: Any
) -> TrainingConfig:
    return TrainingConfig(method, "cub", **settings).completed(classes(name, 60), shape, 37)


@pytest.mark.parametrize(("shots", "epochs"), [(1, 600), (5, 400)])
def test_defaults_are_the_papers_protocol(shots: int, epochs: int) -> None:
    config = completed(shots=shots)
    assert (config.epochs, config.episodes_per_epoch, config.ways, config.queries) == (epochs, 100, 5, 16)
    assert (config.learning_rate, config.meta_batch, config.patience) == (1e-3, 1, None)
    assert (config.options["n_chains"], config.options["n_steps"], config.options["test_steps"]) == (20, 1, 50)


@pytest.mark.parametrize(
    ("name", "shape", "epochs"),
    [
        ("omniglot all-but-latin", (1, 28, 28), 5),
        ("cub train", (3, 84, 84), 200),
        ("mini-imagenet train", (3, 84, 84), 400),
    ],
)
@pytest.mark.parametrize("method", ["feature-transfer", "baseline++"])
def test_methods_on_batches_pass_over_the_data(method: str, name: str, shape: tuple[int, ...], epochs: int) -> None:
    config = completed(method, name, shape)
    assert (config.epochs, config.episodes_per_epoch, config.batch_size) == (epochs, 37, 16)


def test_maml_takes_several_tasks_a_step() -> None:
    assert completed("maml").meta_batch == 4
    assert completed("maml", meta_batch=2).meta_batch == 2


def test_quick_is_a_twentieth_and_what_is_given_stays() -> None:
    assert completed(budget="quick").epochs == 20
    assert completed(budget="quick", shots=1).epochs == 30
    assert completed(budget="quick", epochs=7).epochs == 7


def test_omniglots_twenty_drawings_leave_fifteen_queries() -> None:
    config = TrainingConfig("protonet", "omniglot-to-emnist").completed(classes("omniglot", 20), (1, 28, 28), 1)
    assert config.queries == 15


def test_completing_twice_changes_nothing_and_json_keeps_all() -> None:
    config = completed(options={"objective": "ml", "n_chains": "7"})
    assert config.completed(classes("other", 3), (1, 28, 28), 1) == config
    assert TrainingConfig.from_mapping(json.loads(config.as_json())) == config
    assert config.options["n_chains"] == 7


def test_a_toml_file_says_the_same_as_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'method = "ove-gp"\nscenario = "glyphs"\nobjective = "ml"\nkernel = "rbf"\nshots = 1\nbudget = "quick"\n'
        "learning_rate = 0.01\npatience = 3\nrotations = true\nseed = 4\n[options]\nn_chains = 5\n"
    )
    seen: list[TrainingConfig] = []
    monkeypatch.setattr("polyshot.cli.train.train_run", lambda config, *_, **__: seen.append(config))
    words = (
        "--method ove-gp --scenario glyphs --objective ml --kernel rbf --shots 1 --budget quick --learning-rate 0.01"
    )
    words += " --patience 3 --rotations --seed 4 --option n_chains=5"
    for arguments in ([str(file)], words.split(), [str(file), "--seed", "9", "--option", "n_steps=2"]):
        result = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "x"), *arguments])
        assert result.exit_code == 0, result.output
    from_file, from_flags, overruled = (
        dataclasses.replace(c, options={k: int(v) if k.startswith("n_") else v for k, v in c.options.items()})
        for c in seen
    )
    assert from_file == from_flags
    assert overruled == dataclasses.replace(
        from_file, seed=9, options={"objective": "ml", "kernel": "rbf", "n_chains": 5, "n_steps": 2}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shots = [", "not a TOML file"),
        ("options = 3", "options must be a table"),
        ('method = "ove-gp"\nscenario = "cub"\nshot = 1', "unknown shot; there are backbone,"),
        ('method = "ove-gp"', "scenario must be given"),
        ("seed = 1", "method and scenario must be given"),
    ],
)
def test_a_wrong_toml_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=f"run.toml: {message}"):
        TrainingConfig.from_mapping(read_toml(file), str(file))
    with pytest.raises(InputError, match="cannot be read"):
        read_toml(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "ove"}, "unknown method 'ove'; choose from feature-transfer"),
        ({"method": ["ove-gp"]}, "method must be a name"),
        ({"scenario": 3}, "scenario must be a name"),
        ({"backbone": "resnet"}, "unknown backbone 'resnet'"),
        ({"budget": "huge"}, "paper or quick"),
        ({"shots": 0}, "shots is at least 1"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"meta_batch": True}, "meta_batch must be a whole number"),
        ({"patience": "3"}, "patience must be a whole number"),
        ({"ways": 1}, "ways is at least 2"),
        ({"seed": -1}, "seed at least 0"),
        ({"learning_rate": 0}, "positive"),
        ({"learning_rate": float("nan")}, "positive"),
        ({"learning_rate": float("inf")}, "positive"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"rotations": "yes"}, "rotations must be true or false"),
        ({"options": {"chains": 3}}, "ove-gp: unknown setting 'chains'; choose from objective"),
        ({"options": {"n_chains": "many"}}, "n_chains must be a whole number, not 'many'"),
        ({"objective": "map"}, "objective must be ml or pl"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_an_error_that_says_what_is_right(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        TrainingConfig.from_mapping({"method": "ove-gp", "scenario": "cub", **values})
    assert message in str(error.value)
