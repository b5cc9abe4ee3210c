from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from data import official
from polyshot.cli import app

run = CliRunner().invoke


def test_list_says_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    result = run(app, ["data", "list", "--root", str(tmp_path)])
    assert result.exit_code == 0
    assert f"data folder: {tmp_path}" in result.output
    assert "https://data.caltech.edu/records/65de6-vp158" in result.output
    assert "polyshot data import cub PATH" in result.output
    assert str(tmp_path / "cub.npz") in result.output
    assert "needs cub, mini-imagenet" in result.output


def test_list_finds_imported_sets_and_own_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    root = ["--root", str(tmp_path)]
    imported = run(app, ["data", "import", "omniglot", str(official.omniglot(source)), *root])
    assert imported.exit_code == 1  # five characters are not the whole of Omniglot
    assert f"wrote {tmp_path / 'omniglot.npz'}" in imported.output
    assert "WRONG  classes: 5, but expected 1,623" in imported.output
    for own in ("mine.npz", "embeddings.npz"):
        np.savez(tmp_path / own, X=np.eye(3), labels=np.arange(3))
    (tmp_path / "other.npz").write_text("no")
    listed = run(app, ["data", "list", *root]).output
    assert "omniglot       ready" in listed
    assert "embeddings:mine" in listed
    assert "embeddings:embeddings" in listed
    assert "not a data set" in listed


def test_a_folder_is_imported_verified_and_described(tmp_path: Path) -> None:
    for name in ("ant", "bee", "cow"):
        for k in range(4):
            official.photo(tmp_path / "farm" / name / f"{k}.png", (90, 200, 90))
    (tmp_path / "farm" / "splits.json").write_text('{"train": ["ant"], "test": ["bee", "cow"]}')
    root = ["--root", str(tmp_path / "root")]
    result = run(app, ["data", "import", "folder", str(tmp_path / "farm"), "--size", "48", *root])
    assert result.exit_code == 0, result.output
    assert "ok     every example can be read: each of shape [3, 48, 48]" in result.output
    info = run(app, ["data", "info", "folder:farm", *root]).output
    assert "12 examples of 3 classes" in info
    assert "test: 2 classes" in info
    sheet = tmp_path / "sheets" / "farm.png"
    options = ["--n-way", "2", "--n-shot", "2", "--n-query", "2"]
    result = run(app, ["data", "sheet", "folder:farm", "--out", str(sheet), *options, *root])
    assert result.exit_code == 0, result.output
    with Image.open(sheet) as image:
        assert image.size[1] == 2 * 90 + 6


@pytest.mark.parametrize("name", ["cub", "glyphs", "folder"])
def test_info_describes_what_is_there_and_what_is_not(name: str, tmp_path: Path) -> None:
    result = run(app, ["data", "info", name, "--root", str(tmp_path)])
    assert result.exit_code == 0
    assert "official source:" in result.output


def test_errors_are_messages_not_tracebacks(tmp_path: Path) -> None:
    result = run(app, ["data", "verify", "cub", "--root", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "polyshot data import cub PATH" in result.stderr
    assert "Traceback" not in result.output
    assert run(app, ["data", "verify", "nothing"]).exit_code == 1
    assert run(app, ["data", "sheet", "glyphs", "--out", "x.png", "--split", "novel"]).exit_code == 1


def test_a_glyph_sheet_shows_bright_ink_on_black(tmp_path: Path) -> None:
    result = run(app, ["data", "sheet", "glyphs", "--out", str(tmp_path / "x.png"), "--n-extra-way", "1"])
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "x.png") as image:
        pixels = np.asarray(image)
    assert (pixels == 0).all(axis=2).mean() > 0.2
    assert (pixels == 255).all(axis=2).any()
