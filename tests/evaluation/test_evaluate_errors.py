"""What `polyshot evaluate` prints and refuses."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.errors import DataError, InputError, PolyshotError
from polyshot.evaluation.evaluate import evaluate
from polyshot.evaluation.protocols import Changes
from small_runs import edit_config

FEW = Changes(episodes=7, batches=2, queries=3)
cli = CliRunner().invoke


def test_bad_input_is_told_before_anything_is_computed(trained: Path, tmp_path: Path) -> None:
    def fails(runs: list[Path], what: list[str], message: str, changes: Changes = FEW) -> None:
        with pytest.raises(PolyshotError, match=message):
            evaluate(runs, what, changes, out=tmp_path / "out", quiet=True)
        assert not (tmp_path / "out").exists()

    run = trained / "match"
    fails([tmp_path / "none"], ["all"], "not a run folder of polyshot .* `polyshot train` makes one")
    fails(
        [run],
        ["corruption"],
        "contains embeddings, and only images can be corrupted; leave out",
    )
    fails([run], ["accuracy", "out-of-episode"], "6 classes, but out-of-episode needs 2 x 4", replace(FEW, ways=4))
    fails([run], ["accuracy"], "classes have fewer examples", replace(FEW, queries=100))
    fails([run, run], ["accuracy"], "two runs are called match")
    fails([run], ["speed"], "unknown protocol 'speed'")
    fails([], ["accuracy"], "no runs to evaluate; name at least one run folder")
    with pytest.raises(InputError, match="workers must be at least 1"):
        evaluate([run], workers=0)

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    content = (copy / "config.json").read_text()
    (copy / "config.json").write_text(content.replace('"seed": 0', '"seed": 1'))
    fails([copy], ["accuracy"], r"config\.json: damaged or edited, its content does not match its checksum")
    (copy / "config.json").write_text(content)
    edit_config(copy, momentum=0.9)
    fails([copy], ["accuracy"], r"unknown setting momentum.*damaged, or of another version of polyshot")
    (copy / "config.json").write_text(content)
    edit_config(copy, method="dkt", options={})
    fails([copy], ["accuracy"], f"{re.escape(str(copy))}: the checkpoint is of another method or backbone")
    shutil.copytree(run, copy, dirs_exist_ok=True)
    (copy / "log.jsonl").write_text('{"epoch": 1, ')
    fails([copy], ["accuracy"], r"log\.jsonl: damaged .* restores it, and --unfinished evaluates without it")
    (copy / "best.safetensors").unlink()
    fails([copy], ["accuracy"], "no best.safetensors: no epoch was validated yet")


def test_the_command_prints_figures_and_differences(trained: Path, tmp_path: Path) -> None:
    run, out = shutil.copytree(trained / "ove", tmp_path / "[red]ove"), tmp_path / "out"
    arguments = ["--episodes", "4", "--batches", "2", "--queries", "3", "--out", str(out)]
    result = cli(app, ["evaluate", str(trained / "match"), str(run), *arguments])
    assert result.exit_code == 0, result.output
    assert "note: match: corruption is left out because its examples are embeddings" in result.output
    assert "out-of-episode, 3-way 5-shot" in result.output
    assert re.search(r"│ \[red\]ove - match +│ Log-likelihood +│ [+-]\d\.\d{4} +│ [+-]\d", result.output)
    assert re.search(r"│ \[red\]ove +│", result.output)
    assert f"written: {out / '[red]ove'}" in result.output
    assert (
        sorted(path.name for path in out.rglob("*.json"))
        == ["accuracy.json"] * 2 + ["comparison.json"] + ["out-of-episode.json"] * 2
    )


def test_the_command_says_what_is_wrong_and_fails(trained: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ([str(tmp_path)], "not a run folder of polyshot"),
        ([str(trained / "ove"), "--protocol", "accuracy", "--corruption", "fog"], "--corruption belongs to"),
        ([str(trained / "ove"), "--protocol", "corruption", "--corruption", "fog"], "unknown corruption 'fog'"),
    ):
        result = cli(app, ["evaluate", *arguments])
        assert result.exit_code == 1
        assert result.stderr.startswith("error: ")
        assert message in result.stderr
    assert cli(app, ["evaluate", str(trained / "ove"), "--episodes", "0"]).exit_code == 2


def test_a_run_for_other_examples_is_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "dkt", tmp_path / "dkt")
    edit_config(tmp_path / "dkt", space={"shape": [5], "n_classes": 12})
    with pytest.raises(DataError, match=r"examples have the shape \[6\], but dkt was trained for \[5\]; use the data"):
        evaluate([tmp_path / "dkt"], ["accuracy"], FEW, quiet=True)
