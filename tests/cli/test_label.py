"""`polyshot label` from the command line, without a browser; tests/app/test_label_browser.py has one."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyshot.cli import app

MESSAGES = ["my money is not back", "I want a refund", "", "password lost", "cannot log in"]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    Path("tickets.csv").write_text(
        "\n".join(["message,topic", *[f'"{text}",' for text in MESSAGES], "refund me,refund"])
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open; the server itself ends at once."""
    found: list[str] = []
    monkeypatch.setattr("webbrowser.open", found.append)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: sockets[0].close())
    return found


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["label", *arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_the_command_opens_its_page_and_says_where_the_labels_are(opened: list[str]) -> None:
    output = run("tickets.csv", "--text", "message", "--label", "topic")
    assert "left out, because they cannot be used: 1 row 3: empty text" in output
    assert f"5 items, 1 of them decided; labels are kept in {Path('tickets.csv.labels.sqlite').absolute()}" in output
    assert opened == [output.split("open ")[1].split()[0]]
    assert opened[0].startswith("http://127.0.0.1:")
    assert Path("tickets.csv.labels.sqlite").is_file()
    run("tickets.csv", "--text", "message", "--no-browser", "--labels", "mine.sqlite")
    assert len(opened) == 1
    assert Path("mine.sqlite").is_file()


def test_bad_input_is_named(opened: list[str]) -> None:
    assert "nothing.csv: no such file" in run("nothing.csv", "--text", "message", code=1)
    assert "has no column text; its columns are message, topic" in run("tickets.csv", "--text", "text", code=1)
    assert "which column is to be classified?" in run("tickets.csv", code=1)
    Path("notes.sqlite").write_text("my own notes")
    output = run("tickets.csv", "--text", "message", "--labels", "notes.sqlite", code=1)
    assert "notes.sqlite: labels cannot be read or written (file is not a database)" in output
    assert Path("notes.sqlite").read_text() == "my own notes"
    assert opened == []
