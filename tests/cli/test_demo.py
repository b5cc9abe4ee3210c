from pathlib import Path

import numpy as np
import pytest

from polyshot.cli import demo
from polyshot.cli.demo import Budget, run_demo
from polyshot.data.loading import dataset_path
from polyshot.data.packed import write_packed
from polyshot.data.sets import glyphs
from polyshot.errors import TrainingError
from polyshot.evaluation.evaluate import evaluate
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


@pytest.mark.usefixtures("few_glyphs")
def test_the_demo_trains_evaluates_explains_and_does_nothing_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One process, which gives the same numbers (test_evaluate.py): most of the time of two is their start.
    monkeypatch.setattr(demo, "evaluate", lambda runs, **given: evaluate(runs, **{**given, "workers": 1}))
    report = run_demo(tmp_path / "demo", TINY)
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
    assert len(before) == 2 * (2 + 5)
    run_demo(tmp_path / "demo", TINY)
    assert [path.stat().st_mtime_ns for path in states if path.name != "comparison.json"] == before


@pytest.mark.usefixtures("few_glyphs")
def test_a_training_that_fails_says_where_to_read_why(tmp_path: Path) -> None:
    for name, file, content in (("ove-gp", "log.jsonl", '{"episodes": 4}\n'), ("protonet", "mine.txt", "not a run")):
        (tmp_path / "demo" / name).mkdir(parents=True)
        (tmp_path / "demo" / name / file).write_text(content)  # ove-gp is done; protonet's place is taken
    with pytest.raises(TrainingError, match=r"protonet: training failed; .*protonet\.log says why"):
        run_demo(tmp_path / "demo", TINY)
    assert "holds other files and no run" in (tmp_path / "demo" / "protonet.log").read_text("utf-8")
