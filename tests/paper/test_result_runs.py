"""The paper's runs: every TOML file is a configuration, every result belongs to the one of its name."""

import shutil
from functools import cache
from pathlib import Path

import pytest

from paper import page, run
from polyshot.evaluation import results
from polyshot.evaluation.results import find_results
from polyshot.runs.config import TrainingConfig, read_toml

FILES = sorted(run.CONFIGURATIONS.rglob("*.toml"))
MOST_BYTES = 5_000_000
_read_once = cache(results.read_result)


@pytest.fixture(autouse=True)
def every_result_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and checking them takes most of the time of these tests."""
    monkeypatch.setattr(results, "read_result", _read_once)


@pytest.mark.parametrize("file", FILES, ids=lambda file: run.place_of(file).as_posix())
def test_a_run_is_a_configuration_and_its_results_belong_to_it(file: Path) -> None:
    values = read_toml(file)
    config = TrainingConfig.from_mapping(values, str(file))
    assert config.shots == (1 if file.parent.name == "1-shot" else 5)
    folder = run.RESULTS / run.place_of(file)
    for result in find_results([folder]) if folder.is_dir() else []:
        known = {**result.training, **result.training["options"]}
        assert {name: known[name] for name in values if name != "options"} == {
            name: value for name, value in values.items() if name != "options"
        }
        assert values.get("options", {}).items() <= result.training["options"].items()


def test_finished_runs_are_skipped_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("omniglot-to-chars74k/1-shot/protonet")
    for name, folder in (("CONFIGURATIONS", "runs"), ("RESULTS", "results")):
        target = tmp_path / folder / place
        source = getattr(run, name) / place
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(parents=True)
            shutil.copy(source.with_suffix(".toml"), target.with_suffix(".toml"))
        monkeypatch.setattr(run, name, tmp_path / folder)
    toml = tmp_path / "runs" / place.with_suffix(".toml")
    assert run.is_finished(toml)
    text = toml.read_text("utf-8")
    toml.write_text(text.replace("epochs = 50", "epochs = 60"), "utf-8")
    assert not run.is_finished(toml)
    toml.write_text(text, "utf-8")
    (tmp_path / "results" / place / "out-of-episode.json").unlink()
    assert not run.is_finished(toml)


def test_every_run_on_the_page_is_finished() -> None:
    shown = [file for file in FILES if (run.RESULTS / run.place_of(file)).is_dir()]
    assert shown
    assert [run.place_of(file) for file in shown if not run.is_finished(file)] == []


def test_the_pages_show_what_the_results_say() -> None:
    for file in page.PAGES:
        text = file.read_text("utf-8")
        assert page.filled(text) == text, f"{file.name} differs from its results; run `make results-page`"


def test_committed_results_are_small() -> None:
    assert sum(file.stat().st_size for file in run.RESULTS.rglob("*") if file.is_file()) <= MOST_BYTES
