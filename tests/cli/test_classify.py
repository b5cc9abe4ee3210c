"""`polyshot classify` from the command line."""

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from polyshot.cli import app


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["classify", *arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def rows(path: str = "answers.csv") -> list[dict[str, str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_numbers() -> None:
    """Two classes of twelve points, and queries in the middle of each and far away."""
    rng = np.random.default_rng(0)
    lines = [
        f"{x},{y},{'low' if k < 12 else 'high'}"
        for k, (x, y) in enumerate(rng.normal(size=(24, 2)) + 8 * (np.arange(24) >= 12)[:, None])
    ]
    Path("points.csv").write_text("\n".join(["x,y,level", *lines, "0,0,", "8,8,", "90,-90,"]))


def test_a_table_of_numbers_a_model_file_and_the_same_answers_again() -> None:
    write_numbers()
    output = run("points.csv", "--numbers", "x,y", "--label", "level", "--save", "m.polyshot")
    assert [(row["item"], row["predicted"]) for row in rows()[:2]] == [("row 25", "low"), ("row 26", "high")]
    assert [row["action"] for row in rows()] == ["accept", "accept", "none of these"]
    assert "wrote answers.csv wrote answers.html wrote m.polyshot" in output
    assert "label next: row " in output
    assert not Path("answers.csv.parts").exists()
    Path("new.csv").write_text("x,y\n0,0\n8,8\n90,-90\n")
    run("--model", "m.polyshot", "--query", "new.csv", "--numbers", "x,y", "--out", "again.csv", "--no-page")
    assert [row["p(high)"] for row in rows("again.csv")] == [row["p(high)"] for row in rows()]
    assert not Path("again.html").exists()


def test_what_cannot_be_sorted_is_refused_before_the_work() -> None:
    write_numbers()
    command = ["points.csv", "--numbers", "x,y", "--label", "level", "--sort-into", "sorted"]
    assert "only image files can be sorted" in run(*command, code=1)
    assert not Path("answers.csv").exists()


def test_other_processes_give_the_same_answers() -> None:
    write_numbers()
    command = ["points.csv", "--numbers", "x,y", "--label", "level", "--no-page"]
    run(*command, "--out", "here.csv")
    run(*command, "--out", "there.csv", "--launcher", "local")
    assert Path("there.csv").read_text() == Path("here.csv").read_text()
    assert not Path("there.csv.parts").exists()


def test_existing_files_are_kept_without_force() -> None:
    write_numbers()
    Path("answers.csv").write_text("mine")
    command = ["points.csv", "--numbers", "x,y", "--label", "level", "--fast"]
    assert "answers.csv: there already" in run(*command, code=1)
    assert Path("answers.csv").read_text() == "mine"
    run(*command, "--force")
    assert "prediction_set" not in rows()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "got none of them"),
        (["--support", "a"], "got --support"),
        (["t.csv", "--model", "m", "--query", "q"], "got TABLE, --model, --query"),
        (["--model", "m", "--query", "q", "--encoder", "wordllama"], "a model has its own encoder"),
        (["--model", "m", "--query", "q"], "m: no such model"),
        (["t.csv", "--text", "a", "--label", "b"], "t.csv: no such file"),
        (["t.csv", "--text", "a", "--label", "b", "--confidence", "2"], "confidence must lie between 0 and 1"),
        (["t.csv", "--launcher", "cloud"], "unknown launcher 'cloud'"),
        (["t.csv", "--jobs", "2"], "--jobs is for --launcher"),
        (["t.csv", "--links"], "--links is for --sort-into"),
        (["t.csv", "--out", "answers.xlsx"], "answers are written as .csv or .parquet"),
    ],
)
def test_wrong_commands_are_explained(arguments: list[str], message: str) -> None:
    assert message in run(*arguments, code=1)


def test_tickets_as_in_the_documentation() -> None:
    pytest.importorskip("wordllama", reason="needs polyshot[text]")
    lines = ["refund my order,money", "money back please,money", "cannot log in,login", "password is rejected,login"]
    Path("tickets.csv").write_text("\n".join(["message,category", *lines, "I want my money back,", ","]))
    assert "row 6: empty text" in run("tickets.csv", "--text", "message", "--label", "category", code=1)
    output = run("tickets.csv", "--text", "message", "--label", "category", "--skip-unreadable")
    assert [(row["item"], row["predicted"]) for row in rows()] == [("row 5", "money")]
    assert rows()[0]["nearest_examples"].startswith("money back please (money)")
    assert "left out: 1 row 6: empty text" in output
    assert "prediction sets hold all classes" in output
