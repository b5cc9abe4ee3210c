"""`polyshot serve`: a real server on a real socket, and what it refuses to start with."""

import json
import os
import signal
import socket
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.estimator import OneVsEachClassifier
from processes import start_polyshot, wait_for

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that Python saved: it takes vectors."""
    path = tmp_path_factory.mktemp("model") / "m.polyshot"
    OneVsEachClassifier().fit([[0.0], [0.1], [0.9], [1.0]], ["low", "low", "high", "high"]).save(path)
    return path


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")
def test_a_server_answers_and_ends_in_good_order(model: Path, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    words = ["serve", str(model), "--port", "0", "--fast"]
    process = start_polyshot(tmp_path, words, printed, {"POLYSHOT_TOKEN": TOKEN})
    try:
        address = wait_for(r"listening on (http://127\.0\.0\.1:\d+)", printed, process)
        request = urllib.request.Request(
            f"{address}/classify",
            json.dumps({"item": [0.95]}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=20) as response:
            answer = json.load(response)
        process.terminate()  # SIGTERM
        process.join(20)
        assert process.exitcode in (0, -signal.SIGTERM)
    finally:
        process.kill()
    assert (answer["predicted"], answer["nearest"][0]["label"]) == ("high", "high")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "192.0.2.1"], "so it needs a token"),
        (["--token-file", "missing"], "missing: the token cannot be read"),
        (["--confidence", "2"], "confidence must lie between 0 and 1"),
    ],
)
def test_what_a_server_does_not_start_with(model: Path, options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["serve", str(model), *options])
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


def test_a_port_that_is_taken(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(app, ["serve", str(model), "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 1
    assert "choose another port" in result.output
