import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from typer.testing import CliRunner

from polyshot.cli import app, load_command
from polyshot.data import load
from polyshot.errors import InputError
from polyshot.methods import METHODS, OVEGP
from polyshot.methods.backbones import Init
from polyshot.runs.config import OPTION_FLAGS, TrainingConfig, read_toml
from polyshot.system.settings import field_settings
from polyshot.task import Space
from small_runs import write_characters


def completed(
    method: str = "ove-gp", smallest_class: int = 60, classifier_epochs: int = 200, **settings: Any
) -> TrainingConfig:
    return TrainingConfig(method, "cub", **settings).completed(smallest_class, classifier_epochs, 37)


@pytest.mark.parametrize(("shots", "epochs"), [(1, 600), (5, 400)])
def test_defaults_are_the_papers_protocol(shots: int, epochs: int) -> None:
    config = completed(shots=shots)
    assert (config.epochs, config.episodes_per_epoch, config.ways, config.queries) == (epochs, 100, 5, 16)
    assert (config.learning_rate, config.meta_batch, config.patience) == (1e-3, 1, None)
    assert (config.options["n_chains"], config.options["n_steps"], config.options["test_steps"]) == (20, 1, 50)


@pytest.mark.parametrize("method", ["feature-transfer", "baseline++"])
def test_methods_on_batches_pass_over_the_data_as_often_as_the_data_set_says(method: str) -> None:
    config = completed(method, classifier_epochs=11)
    assert (config.epochs, config.episodes_per_epoch, config.batch_size) == (11, 37, 16)
    assert completed(method, classifier_epochs=40, budget="quick").epochs == 2


def test_a_character_set_asks_for_five_passes(tmp_path: Path) -> None:
    assert load("omniglot", "all", root=write_characters(tmp_path)).classifier_epochs == 5


def test_maml_takes_several_tasks_a_step() -> None:
    assert completed("maml").meta_batch == 4
    assert completed("maml", meta_batch=2).meta_batch == 2


def test_quick_is_a_twentieth_and_what_is_given_stays() -> None:
    assert completed(budget="quick").epochs == 20
    assert completed(budget="quick", shots=1).epochs == 30
    assert completed(budget="quick", epochs=7).epochs == 7


def test_omniglots_twenty_drawings_leave_fifteen_queries() -> None:
    assert completed("protonet", smallest_class=20).queries == 15


def test_completing_twice_changes_nothing_and_json_keeps_all() -> None:
    config = completed(options={"objective": "ml", "n_chains": "7"})
    assert config.completed(3, 7, 1) == config
    assert TrainingConfig.from_mapping(json.loads(json.dumps(config.as_dict()))) == config
    assert config.options["n_chains"] == 7


def test_a_toml_file_says_the_same_as_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'method = "ove-gp"\nscenario = "glyphs"\nobjective = "ml"\nkernel = "rbf"\nshots = 1\nbudget = "quick"\n'
        "learning_rate = 0.01\npatience = 3\nrotations = true\nseed = 4\n[options]\nn_chains = 5\n"
    )
    seen: list[TrainingConfig] = []
    monkeypatch.setattr("polyshot.runs.trainer.train", lambda config, *_, **__: seen.append(config))
    words = (
        "--method ove-gp --scenario glyphs --objective ml --kernel rbf --shots 1 --budget quick --learning-rate 0.01"
    )
    words += " --patience 3 --rotations --seed 4 --option n_chains=5"
    for arguments in ([str(file)], words.split(), [str(file), "--seed", "9", "--option", "n_steps=2"]):
        result = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "x"), *arguments])
        assert result.exit_code == 0, result.output
    from_file, from_flags, overruled = seen
    assert from_file == from_flags
    assert {name: from_file.options[name] for name in ("objective", "kernel", "n_chains")} == {
        "objective": "ml", "kernel": "rbf", "n_chains": 5,
    }  # fmt: skip
    assert overruled == dataclasses.replace(from_file, seed=9, options={**from_file.options, "n_steps": 2})


def test_every_setting_is_a_flag_with_its_help_and_default() -> None:
    flags = {parameter.name: parameter for parameter in load_command("train").params}
    settings = field_settings(TrainingConfig)
    assert set(settings) - {"options"} | set(OPTION_FLAGS) <= set(flags)
    for name, setting in settings.items():
        if name != "options":
            assert flags[name].default is None  # so that a file's value stands
            assert flags[name].help.startswith(setting.help)
            assert setting.help
    assert flags["shots"].help == "Support examples per class. Default: 5."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shots = [", "not a TOML file"),
        ('method = "ove-gp"\nscenario = "cub"\noptions = 3', "options must be a table"),
        ('method = "ove-gp"\nscenario = "cub"\nkernel = "rbf"\noptions = 3', "options must be a table"),
        ('method = "ove-gp"\nscenario = "cub"\nshot = 1', "unknown setting shot; choose from backbone,"),
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
        ({"method": "ove"}, "unknown method 'ove'; choose from feature-transfer, baseline++"),
        ({"method": ["ove-gp"]}, "method must be text, not ['ove-gp']"),
        ({"scenario": 3}, "scenario must be text, not 3"),
        ({"backbone": "resnet"}, "unknown backbone 'resnet'; choose from conv4, identity"),
        ({"backbone": "no_such_module:Net"}, "the backbone 'no_such_module:Net' cannot be imported"),
        ({"budget": "huge"}, "budget must be paper or quick, not 'huge'"),
        ({"shots": 0}, "shots must be a whole number, at least 1 and at most 10000000, not 0"),
        ({"shots": 10**12}, "shots must be a whole number, at least 1 and at most 10000000, not 1000000000000"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"meta_batch": True}, "meta_batch must be a whole number"),
        ({"patience": "3"}, "patience must be a whole number"),
        ({"ways": 1}, "ways must be a whole number, at least 2"),
        ({"seed": -1}, "seed must be a whole number, at least 0"),
        ({"learning_rate": 0}, "learning_rate must be a number, above 0, not 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number, above 0, not nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be a number, above 0, not inf"),
        ({"learning_rate": 10**400}, "learning_rate must be a number, above 0, not 1000"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"rotations": "yes"}, "rotations must be true or false"),
        ({"options": {"chains": 3}}, "ove-gp: unknown setting 'chains'; choose from objective"),
        ({"options": {"n_chains": "many"}}, "n_chains must be a whole number, not 'many'"),
        ({"objective": "map"}, "objective must be ml or pl"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_an_error_that_says_what_is_right(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="^the configuration: .*" + re.escape(message)):
        TrainingConfig.from_mapping({"method": "ove-gp", "scenario": "cub", **values})


def test_the_paper_s_settings_are_defaults_that_an_option_overrules() -> None:
    config = TrainingConfig("ove-gp", "glyphs", settings="paper", options={"kernel_rate": 0.5})
    assert config.options["average"] == METHODS["ove-gp"].paper_options["average"] == "score"
    assert config.options["kernel_rate"] == 0.5
    assert TrainingConfig("ove-gp", "glyphs").options["average"] != "score"


def test_a_subclass_without_some_options_takes_the_rest_of_the_paper_settings(monkeypatch) -> None:
    class Fewer(OVEGP):
        """The one-vs-each GP with one option."""

        def __init__(self, space: Space, backbone: nn.Module | None = None, *, init: Init = "torch") -> None:
            super().__init__(space, backbone, init=init)

    monkeypatch.setattr(TrainingConfig, "method_class", Fewer)
    assert TrainingConfig("ove-gp", "glyphs", settings="paper").options == {"init": "he-fan-out"}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_its_own_paper_settings(method: str) -> None:
    options = TrainingConfig(method, "glyphs", settings="paper").options
    assert METHODS[method].paper_options.items() <= options.items()
