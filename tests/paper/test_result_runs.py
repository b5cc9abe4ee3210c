"""The runs under results/: every TOML file is a configuration, and every result is of the configuration beside it."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from polyshot.evaluation.results import find_results
from polyshot.runs.config import TrainingConfig, read_toml

RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(RESULTS.rglob("*.toml"))


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RESULTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(RESULTS).with_suffix("").as_posix())
def test_a_run_is_a_configuration_and_its_results_are_of_it(file: Path) -> None:
    values = read_toml(file)
    TrainingConfig.from_mapping(values, str(file))
    assert values["shots"] == (1 if file.parent.name == "1-shot" else 5)
    if file.with_suffix("").is_dir():
        for result in find_results([file.with_suffix("")]):
            known = {**result.training, **result.training["options"]}
            assert {name: known[name] for name in values if name != "options"} == {
                name: value for name, value in values.items() if name != "options"
            }
            assert values.get("options", {}).items() <= result.training["options"].items()


def test_make_results_skips_the_runs_that_the_page_shows_and_no_other(tmp_path: Path) -> None:
    run = load_script("run")
    shown = [file for file in FILES if (file.with_suffix("") / "log.jsonl").is_file()]
    assert [file for file in FILES if run.finished(file)] == shown
    copy = tmp_path / "1-shot" / "protonet"
    shutil.copytree(RESULTS / "omniglot-to-chars74k" / "1-shot" / "protonet", copy)
    toml = (RESULTS / "omniglot-to-chars74k" / "1-shot" / "protonet.toml").read_text("utf-8")
    file = copy.with_suffix(".toml")
    file.write_text(toml, "utf-8")
    assert run.finished(file)
    file.write_text(toml.replace("epochs = 50", "epochs = 60"), "utf-8")
    assert not run.finished(file)
    file.write_text(toml, "utf-8")
    (copy / "out-of-episode.json").unlink()
    assert not run.finished(file)


def test_the_page_says_what_the_results_say() -> None:
    page = load_script("page")
    for file in page.PAGES:
        text = file.read_text("utf-8")
        assert page.filled(text) == text, f"{file.name} is not what its results say; `make results-page` writes it anew"
