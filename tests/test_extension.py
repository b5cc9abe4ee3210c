"""Extension from outside: a module that registers a method, a kernel, a likelihood, a data set and a measure.

The module is made of the Python blocks of docs/extending.md, so that the page and this test cannot disagree. It lies
outside the package; training, evaluation, tables and report run on it in processes of their own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from polyshot.data.registry import DATASETS
from polyshot.evaluation.measures import MEASURES
from polyshot.gp import KERNELS, LIKELIHOODS
from polyshot.methods import METHODS
from processes import polyshot

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
TRAIN = (
    "train --scenario blobs --ways 4 --shots 2 --queries 4 --epochs 1 --episodes-per-epoch 3 --validation-episodes 3"
)
EVALUATE = "evaluate --protocol accuracy --protocol out-of-episode --episodes 4 --batches 2 --queries 5"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with toy_module.py, two trained and evaluated runs, a table and a report."""
    folder = tmp_path_factory.mktemp("outside")
    code = [part.partition("```")[0] for part in PAGE.read_text("utf-8").split("```python\n")[1:]]
    (folder / "toy_module.py").write_text("\n\n".join(code), "utf-8")
    for out, words in {
        "runs/means": "--method scaled-means --option likelihood=bounded-softmax",
        "runs/laplace": "--method ove-gp --objective pl --kernel laplace",
    }.items():
        with_toys(folder, *TRAIN.split(), *words.split(), "--out", out)
    (folder / "evaluate.txt").write_text(with_toys(folder, *EVALUATE.split(), "runs/means", "runs/laplace"), "utf-8")
    with_toys(folder, "tables", "runs", "--out", "tables.md")
    with_toys(folder, "report", "runs/means", "runs/laplace", "--out", "report.html")
    return folder


def with_toys(folder: Path, *words: str) -> str:
    done = polyshot(folder, "--plugin", "toy_module", *words)
    assert done.code == 0, done.output
    return done.output


def test_the_package_itself_knows_nothing_of_the_toys() -> None:
    assert "scaled-means" not in METHODS
    assert "laplace" not in KERNELS
    assert "bounded-softmax" not in LIKELIHOODS
    assert "blobs" not in DATASETS
    assert "top3" not in MEASURES


def test_commands_list_the_toys(workplace: Path) -> None:
    assert "scaled-means" in with_toys(workplace, "methods")
    listed = with_toys(workplace, "data", "list")
    assert "blobs" in listed
    assert "blobs-again" in listed


@pytest.mark.parametrize("file", ["tables.md", "report.html"])
def test_tables_and_report_show_titles_and_measure(workplace: Path, file: str) -> None:
    text = (workplace / file).read_text("utf-8")
    for title in ("Scaled means", "bounded-softmax", "OVE PG GP + Laplace", "Blobs", "Top-3 accuracy"):
        assert title in text, title


def test_evaluate_prints_the_measure(workplace: Path) -> None:
    assert "Top-3 accuracy" in (workplace / "evaluate.txt").read_text("utf-8")


def test_without_the_plugin_the_error_lists_the_methods(workplace: Path) -> None:
    done = polyshot(workplace, "evaluate", "runs/means")
    assert done.code == 1
    assert "unknown method 'scaled-means'; choose from feature-transfer" in done.output


def test_an_installed_package_needs_no_plugin_option(workplace: Path) -> None:
    """Entry points: metadata beside the module is what pip would have installed."""
    info = workplace / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[polyshot.kernels]\nentry-laplace = toy_module:Laplace\n")
    code = "from polyshot.gp import make_kernel; print(make_kernel('entry-laplace').title)"
    done = subprocess.run([sys.executable, "-c", code], cwd=workplace, capture_output=True, text=True, timeout=300)
    assert done.stdout == "Laplace\n", done.stderr
