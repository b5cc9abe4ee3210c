from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.cli.demo import Budget, run_demo
from polyshot.data.loading import dataset_path
from polyshot.data.packed import write_packed
from polyshot.data.sets import glyphs
from small_runs import drawings

TINY = Budget(training=4, epoch=2, validation=1, test=2)


@pytest.fixture
def few_glyphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five classes to train on, five to validate, ten to test, in place of the thousands that are drawn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    members = glyphs.DATASET.splits.members
    scripts = [members[split][0] for split, n in (("train", 5), ("validation", 5), ("test", 10)) for _ in range(n)]
    images, labels = drawings(20, 24, 0)
    names = np.array([f"{script}/LETTER {i}" for i, script in enumerate(scripts)])
    write_packed(dataset_path("glyphs"), {"images": images, "labels": labels, "class_names": names})


@pytest.mark.usefixtures("few_glyphs", "forked_workers")
def test_the_demo_trains_evaluates_explains_and_does_nothing_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # One worker, which gives the same numbers (test_evaluate.py): most of the time of two is their start.
    report = run_demo(tmp_path / "demo", TINY, workers=1)
    assert report == tmp_path / "demo" / "report.html"
    page = report.read_text("utf-8")
    for figure in ("reliability", "risk-coverage", "roc", "corruption-bars", "episodes-drawn"):
        assert f'id="{figure}"' in page
    out = capfd.readouterr().out
    assert "one-vs-each" in out
    assert "share of queries assigned to the right class" in out
    assert "ove-gp" in out
    assert "protonet" in out
    assert " to " in out
    assert "report.html" in out.replace("\n", "")
    states = sorted((tmp_path / "demo").rglob("*.safetensors")) + sorted((tmp_path / "demo").rglob("results/*.json"))
    before = [path.stat().st_mtime_ns for path in states if path.name != "comparison.json"]
    assert len(before) == 2 * (3 + 5)
    run_demo(tmp_path / "demo", TINY, workers=1)
    assert [path.stat().st_mtime_ns for path in states if path.name != "comparison.json"] == before


@pytest.mark.usefixtures("few_glyphs", "forked_workers")
def test_a_training_that_fails_is_an_error_message(tmp_path: Path) -> None:
    (tmp_path / "demo" / "protonet").mkdir(parents=True)
    (tmp_path / "demo" / "protonet" / "mine.txt").write_text("not a run")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 1
    assert "protonet: holds other files and no run; name a new or empty folder" in result.stderr
