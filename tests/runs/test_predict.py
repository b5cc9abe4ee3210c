"""`polyshot predict` with files: strange images, single and unreadable ones, and answers that are there already."""

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

import polyshot
from polyshot.cli import app
from polyshot.data import load_scenario
from polyshot.runs.familiarity import Familiarity, looks_strange, n_strange
from polyshot.runs.folder import RunFolder
from polyshot.runs.trainer import train
from small_runs import CHARACTERS, small, write_characters


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = small("protonet", "glyphs", ways=5, queries=5, epochs=1, episodes_per_epoch=60)
    return train(config, tmp_path_factory.mktemp("glyphs") / "run")


def write(folder: Path, images: np.ndarray) -> list[str]:
    """Two classes of ten images each, and five queries."""
    for i, pixels in enumerate(images[:25]):
        file = folder / ("query" if i >= 20 else f"support/{'ab'[i % 2]}") / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return ["--support", str(folder / "support"), "--query", str(folder / "query"), "--out", str(folder / "out")]


def photos() -> np.ndarray:
    """Coloured noise: no ink on paper."""
    return np.random.default_rng(0).integers(0, 256, (25, 40, 40, 3), np.uint8)


def characters() -> np.ndarray:
    """Glyphs of classes that the run has not seen."""
    classes = load_scenario("glyphs").test
    return classes.x[:: len(classes.x) // 25][:25, 0].numpy()


def predict(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["predict", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_photographs_for_a_network_of_characters_are_warned_of(run: Path, tmp_path: Path) -> None:
    def warning(name: str, images: np.ndarray) -> str:
        return " ".join(predict(run, *write(tmp_path / name, images)).stderr.split())

    assert "25 of 25 images are photographs in colour" in warning("photos", photos())
    assert "look like nothing that the run was trained on (glyphs)" in warning("grey", photos()[..., 0])
    assert warning("characters", characters()) == ""
    red_ink = np.stack([255 - characters() // 5, *2 * [255 - characters()]], axis=-1)
    assert "in colour" not in warning("red", red_ink)


def test_a_run_that_kept_nothing_to_compare_with_says_so(run: Path, tmp_path: Path) -> None:
    arguments = write(tmp_path / "characters", characters())
    kept = (run / "familiar.safetensors").rename(tmp_path / "kept")
    try:
        assert "is not known" in predict(run, *arguments).output
        assert polyshot.load(run).familiar is None
        assert "photographs in colour" in predict(run, *write(tmp_path / "photos", photos())).stderr
    finally:
        kept.rename(run / "familiar.safetensors")


def test_familiarity_is_tied_to_the_weights(tmp_path: Path) -> None:
    root = write_characters(tmp_path)
    folders = [
        RunFolder(train(small("protonet", CHARACTERS, seed=seed), tmp_path / str(seed), root)) for seed in (0, 1)
    ]
    assert folders[0].familiar() is not None
    (folders[1].path / "familiar.safetensors").write_bytes((folders[0].path / "familiar.safetensors").read_bytes())
    assert folders[1].familiar() is None


def test_validation_examples_themselves_look_usual() -> None:
    """p-values of the examples that made the reference are uniform, and too many small ones are strange."""
    rng = torch.Generator().manual_seed(0)
    usual = torch.rand(199, generator=rng)
    familiar = Familiarity(torch.zeros(1, 1), usual)
    p_values = familiar.p_values(usual[:, None])
    torch.testing.assert_close(p_values.sort().values, torch.arange(2, 201) / 200)
    assert (n_strange(p_values), looks_strange(p_values)) == (1, False)
    assert looks_strange(torch.tensor([0.005] * 5 + [0.5] * 15))
    assert not looks_strange(torch.tensor([0.005] * 2 + [0.5] * 18))
    assert not looks_strange(torch.tensor([0.005]))


def test_a_single_image_and_no_answer_overwritten(run: Path, tmp_path: Path) -> None:
    arguments = write(tmp_path, characters())
    arguments[3] = str(tmp_path / "query" / "20.png")
    predict(run, *arguments)
    before = (tmp_path / "out" / "predictions.csv").read_text()
    assert len(before.splitlines()) == 2
    assert before.splitlines()[1].startswith("20.png,")
    assert "predictions.csv" in predict(run, *arguments, "--seed", 1, code=1).stderr
    assert (tmp_path / "out" / "predictions.csv").read_text() == before
    predict(run, *arguments, "--force")


def test_unreadable_images_are_left_out_on_request(run: Path, tmp_path: Path) -> None:
    arguments = write(tmp_path, characters())
    (tmp_path / "query" / "20.png").write_bytes(b"torn")
    (tmp_path / "support" / "a" / "0.png").write_bytes(b"torn")
    assert "cannot be read" in predict(run, *arguments, code=1).stderr
    output = predict(run, *arguments, "--skip-unreadable").output
    assert output.count("left out: ") == 2
    assert len((tmp_path / "out" / "predictions.csv").read_text().splitlines()) == 1 + 4
    for file in (tmp_path / "query").iterdir():
        file.write_bytes(b"torn")
    assert "none of its images can be read" in predict(run, *arguments, "--skip-unreadable", "--force", code=1).stderr
