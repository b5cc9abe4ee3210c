"""Each sentence of SECURITY.md that is not tested elsewhere; docs/robustness.md says where the others are."""

import ast
import csv
import html.parser
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from made_results import make_result
from polyshot.__main__ import main
from polyshot.app import ItemClassifier, Items, classify
from polyshot.app.page import make_page
from polyshot.app.tables import read_columns
from polyshot.cli import app
from polyshot.data.images import open_image
from polyshot.errors import DataError, PolyshotError
from polyshot.evaluation.results import find_results, write_result
from polyshot.report.page import make_report
from polyshot.report.reliability import write_reliability
from polyshot.report.tables import make_tables
from polyshot.report.tables_text import render
from polyshot.runs.launchers import Job, run_job
from polyshot.runs.trained import load
from polyshot.runs.trainer import train
from polyshot.system.files import write_atomically
from polyshot.system.lock import locked
from small_runs import edit_config, small

EVIL = [
    '=HYPERLINK("http://x")',
    "+1",
    "-1",
    "@SUM(A1)",
    "\x1b[31mred",
    "\u202eno",
    "<script>alert(1)</script>",
    "a\nb",
]
NO_FORMULA = tuple("=+-@\t\r")


def assert_harmless(shown: str) -> None:
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def assert_plain_table(text: str) -> None:
    """No cell of a CSV table is a formula, though it may be a number."""
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            assert not cell.startswith(NO_FORMULA) or float(cell) <= 0, cell


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))


def assert_safe_page(page: str, n_scripts: int) -> None:
    """Only our own scripts, no handlers, and nothing from elsewhere."""
    tags = _Tags()
    tags.feed(page)
    assert sum(tag == "script" for tag, _ in tags.found) == n_scripts
    for _, attributes in tags.found:
        for name, value in attributes:
            assert not name.startswith("on")
            assert name not in ("src", "href") or (value or "").startswith(("data:", "#"))
    assert_harmless(page)


def test_predictions_of_files_with_evil_names(embeddings: str, root: Path, tmp_path: Path) -> None:
    run = train(small("dkt", embeddings, epochs=1), tmp_path / "run", quiet=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * len(EVIL), 8)).astype(np.float32)
    names = np.array([*EVIL[:-1], "caf\udce9"])
    np.savez(tmp_path / "support.npz", X=X, labels=np.arange(len(X)) % len(names), class_names=names)
    words = ["predict", str(run), "--support", str(tmp_path / "support.npz"), "--query", str(tmp_path / "support.npz")]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert_harmless(result.output)
    assert_plain_table((tmp_path / "predictions.csv").read_text("utf-8"))
    assert set(json.loads((tmp_path / "predictions.json").read_bytes())["classes"]) == set(names.tolist())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no file names that are not UTF-8")
def test_pictures_with_evil_names(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYSHOT_DATA", str(root))
    run = train(
        small("dkt", "omniglot-to-chars74k", epochs=1, backbone="torch.nn:Flatten"), tmp_path / "run", root, quiet=True
    )
    for folder in ("support/=1+1", "support/b\x1b[31m", "query"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("=1+1.png", "red\x1b[31m.png", "caf\udce9.png", "a\nb.png"):
            Image.fromarray(np.full((28, 28), 200, np.uint8)).save(tmp_path / folder / name)
    words = ["--support", str(tmp_path / "support"), "--query", str(tmp_path / "query"), "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["predict", str(run), *words])
    assert result.exit_code == 0, result.output
    assert_harmless(result.output)
    assert_plain_table((tmp_path / "predictions.csv").read_text("utf-8"))


def test_all_that_a_command_prints_is_made_harmless(
    embeddings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in Path("src/polyshot/cli").glob("*.py"):
        printed = [line.strip() for line in path.read_text("utf-8").splitlines() if "typer.echo(" in line]
        allowed = {
            "messages.py": ['typer.echo(printable(text, keep="\\n"), err=err)'],
            "tables.py": ["typer.echo(text, nl=False)"],  # see test_reports_and_tables_of_evil_names
        }
        assert printed == allowed.get(path.name, []), "use say"
    run = train(small("dkt", embeddings, epochs=1), tmp_path / "\u202erun")
    assert_harmless(capsys.readouterr().err)
    data = str(tmp_path / "x.npz")
    np.savez(data, X=np.eye(8, dtype=np.float32), labels=np.arange(8) % 4)
    for words in (["train", "--out", run], ["predict", run, "--support", data, "--query", data, "--out", run]):
        result = CliRunner().invoke(app, [*map(str, words)])
        assert result.exit_code == 0, result.output
        assert_harmless(result.output)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no file names that are not UTF-8")
def test_a_table_whose_path_is_not_utf8(tmp_path: Path) -> None:
    import pyarrow.parquet

    path = tmp_path / "caf\udce9.parquet"
    with path.open("wb") as file:
        pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2]}), file)
    assert read_columns(path, ["a"]) == {"a": [1, 2]}


def test_answers_about_items_with_evil_names() -> None:
    labels = [EVIL[k % len(EVIL)] for k in range(4 * len(EVIL))]
    X = np.random.default_rng(0).normal(size=(len(labels), 3))
    model = ItemClassifier.fit(Items.of("vectors", X, labels), labels)
    answers = classify(model, Items.of("vectors", X[: len(EVIL)], EVIL))
    assert_safe_page(make_page(answers), n_scripts=1)


def test_reports_and_tables_of_evil_names(tmp_path: Path) -> None:
    for number, name in enumerate(EVIL):
        write_result(
            tmp_path / str(number) / "results" / "accuracy.json", make_result(name, scenario=name, test_set=name)
        )
    results = find_results([tmp_path])
    assert_safe_page(make_report(results), n_scripts=0)
    for form in ("markdown", "latex", "csv"):
        assert_harmless(render(make_tables(results), form))
    assert_plain_table(render(make_tables(results), "csv"))


def test_diagrams_of_evil_names(tmp_path: Path) -> None:
    results = [make_result(name) for name in (*EVIL, "caf\udce9", "$\\frac$")]
    assert len(write_reliability(results, tmp_path)) == 2


def test_a_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "out.csv").symlink_to(precious)
    write_atomically(tmp_path / "out.csv", b"new")
    assert precious.read_text() == "mine"
    assert not (tmp_path / "out.csv").is_symlink()


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="Windows has no such flag")
@pytest.mark.parametrize("writer", ["log", "lock"])
def test_logs_and_locks_are_not_opened_through_a_link(writer: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / writer).symlink_to(precious)
    if writer == "log":
        failure = run_job(Job("a job", ((sys.executable, "-V"),), tmp_path / "log"))
        assert failure is not None
        assert failure.startswith("cannot be run: ")
    else:
        with pytest.raises(DataError, match="cannot be written"), locked(tmp_path / "lock"):
            pass
    assert precious.read_text() == "mine"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no file names that are not UTF-8")
def test_a_job_with_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run_job(Job("a job", ((sys.executable, "-c", "", "caf\udce9\x1b[31m"),), log)) is None
    assert_harmless(log.read_text("utf-8"))


def test_temporary_names_cannot_be_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, target: (names.add(self.name), replace(self, target))[1])
    for _ in range(20):
        write_atomically(tmp_path / "x", b"")
    assert len(names) == 20
    assert not any(str(os.getpid()) == part for name in names for part in name.split("."))


def test_nothing_is_unpickled_extracted_or_evaluated() -> None:
    """But for what our own parent process sent, and one file of known checksum that torch reads as weights only."""
    refused = {"loads", "load", "Unpickler", "extractall", "extract", "unpack_archive", "system"}
    modules = {"pickle", "torch", "joblib", "marshal", "os", "shutil", "archive", "zipfile", "tarfile"}
    found = set()
    for path in Path("src/polyshot").rglob("*.py"):
        source = path.read_text("utf-8")
        assert "allow_pickle=True" not in source
        assert "weights_only=False" not in source
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and node.attr in refused and getattr(node.value, "id", "") in modules:
                found.add((path.name, ast.unparse(node)))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("exec", "eval"):
                found.add((path.name, ast.unparse(node)))
    assert found == {("pickles.py", "pickle.Unpickler"), ("parallel.py", "pickle.loads"), ("images.py", "torch.load")}


def test_a_run_of_a_stranger_can_call_nothing_but_a_network(embeddings: str, tmp_path: Path) -> None:
    run = train(small("dkt", embeddings, epochs=1), tmp_path / "run", quiet=True)
    for name in ("os:abort", "os:getcwd", "builtins:exit", "subprocess:Popen", "../x:y", "polyshot"):
        edit_config(run, backbone=name)
        with pytest.raises(PolyshotError, match="backbone"):
            load(run)


def test_an_image_beyond_the_limit_of_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    with path.open("wb") as file:
        file.truncate(2**28 + 1)  # takes no space on the disk
    with pytest.raises(DataError, match="larger than 256 MB"):
        open_image(path, "RGB")


def test_a_path_that_is_not_utf8_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "utf-8"))
    monkeypatch.setattr("polyshot.cli.app", lambda prog_name: print("written: caf\udce9.md", flush=True))
    main()
    assert shown.getvalue().split() == [b"written:", b"caf\\udce9.md"]
