"""Somebody outside the package adds a data set and trains on it, with public names only."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.data import DATASETS, SCENARIOS, DataSet, EpisodeSampler, Scenario, Source, load, load_scenario, verify
from polyshot.errors import InputError
from polyshot.runs.config import TrainingConfig
from polyshot.runs.trainer import train

N_CLASSES = 12


def squares() -> Mapping[str, np.ndarray]:
    """Bright squares, one place per class."""
    labels = np.repeat(np.arange(N_CLASSES), 6)
    images = np.random.default_rng(0).integers(0, 40, (len(labels), 28, 28), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 4, 4:24] = 255
    names = np.array([f"square {c}" for c in range(N_CLASSES)])
    return {"images": images, "labels": labels, "class_names": names}


@pytest.fixture
def toy_name() -> Iterator[str]:
    toy = DataSet("toy-squares", "Squares", "squares on black", "characters", make=squares, editions={"all": 72})
    DATASETS.register(toy.name, toy)
    yield toy.name
    DATASETS.unregister(toy.name)


def test_a_function_is_a_data_set_and_a_scenario_without_any_file(toy_name: str, tmp_path: Path) -> None:
    assert SCENARIOS[toy_name].title == "Squares"
    assert toy_name in list(SCENARIOS)
    assert load(toy_name, "test").class_names == ("square 3", "square 7", "square 11")
    assert all(check.passed for check in verify(toy_name))
    assert EpisodeSampler(load_scenario(toy_name).train, 5, 1, 2, seed=0)[0].query.x.shape == (10, 1, 28, 28)
    config = TrainingConfig(
        "protonet", toy_name, ways=2, shots=1, queries=2, epochs=1, episodes_per_epoch=2, validation_episodes=1
    )
    train(config, tmp_path / "run", threads=1)
    assert (tmp_path / "run" / "best.safetensors").is_file()


@pytest.mark.parametrize(
    ("command", "expected"),
    [("list", "toy-squares    built in"), ("info", "edition: all 72"), ("verify", "ok     examples: all 72")],
)
def test_commands_know_it(command: str, expected: str, toy_name: str, tmp_path: Path) -> None:
    arguments = ["--root", str(tmp_path)] if command == "list" else [toy_name]
    result = CliRunner().invoke(app, ["data", command, *arguments])
    assert result.exit_code == 0, result.output
    assert expected in result.output


def test_a_scenario_can_be_registered_too(toy_name: str) -> None:
    scenario = Scenario.across("squares-to-glyphs", Source(toy_name, "all"), "glyphs")
    SCENARIOS.register(scenario.name, scenario)
    try:
        assert load_scenario("squares-to-glyphs").title == "Squares→glyphs"
        assert len(load_scenario("squares-to-glyphs").train.class_names) == N_CLASSES
    finally:
        SCENARIOS.unregister(scenario.name)


def test_a_data_set_needs_a_plain_name_and_one_way_to_be_read() -> None:
    with pytest.raises(InputError, match="small letters, digits and hyphens only, not 'my:set'"):
        DataSet("my:set", "Mine", "mine", "natural", make=squares)
    with pytest.raises(InputError, match="needs either `read` or `make`, and not both"):
        DataSet("mine", "Mine", "mine", "natural")
