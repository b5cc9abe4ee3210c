import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from polyshot.encoders import ImageEncoder
from polyshot.encoders.trained import Characters
from polyshot.errors import DataError, InputError, TrainingError
from polyshot.runs.config import TrainingConfig, read_toml
from polyshot.runs.folder import RunFolder
from polyshot.runs.trained import load
from polyshot.runs.trainer import train
from small_runs import CHARACTERS, drawings, small


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    out = tmp_path_factory.mktemp("runs") / "characters"
    train(small("protonet", CHARACTERS), out, root, threads=1)
    return out


@pytest.fixture
def images() -> np.ndarray:
    return drawings(3, 2, seed=2)[0]


def test_a_run_encodes_with_its_network(run: Path, images: np.ndarray) -> None:
    encoder = ImageEncoder(f"polyshot:{run}")
    with torch.no_grad():
        expected = load(run).method.backbone(torch.from_numpy(images)[:, None] / 255).numpy()
    np.testing.assert_allclose(encoder.transform(images), expected, atol=1e-5)
    about = encoder.encoder
    assert (about.title, about.dimension) == ("protonet trained on omniglot-to-chars74k", 64)


def test_ink_may_be_dark_or_bright_and_colour_does_not_matter(run: Path, images: np.ndarray) -> None:
    encoder = ImageEncoder(f"polyshot:{run}")
    vectors = encoder.transform(images)
    np.testing.assert_allclose(encoder.transform(255 - images), vectors, atol=1e-5)
    colour = [Image.fromarray(image).convert("RGB") for image in images]
    np.testing.assert_allclose(encoder.transform(colour), vectors, atol=1e-5)
    large = [Image.fromarray(image).resize((112, 112)) for image in images]
    assert encoder.transform(large).shape == vectors.shape


def test_a_run_that_changed_is_read_again(run: Path, images: np.ndarray, tmp_path: Path, root: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    encoder = ImageEncoder(f"polyshot:{copy}")
    before = encoder.transform(images)
    shutil.rmtree(copy)
    train(small("protonet", CHARACTERS, seed=5), copy, root, threads=1)
    assert not np.allclose(encoder.transform(images), before)


def test_runs_without_a_network_for_images_are_refused(
    root: Path, embeddings: str, tmp_path: Path, images: np.ndarray
) -> None:
    train(small("ove-gp", embeddings), tmp_path / "embeddings", threads=1)
    with pytest.raises(InputError, match="trained on embeddings and has no network for images"):
        ImageEncoder(f"polyshot:{tmp_path / 'embeddings'}").transform(images)
    train(small("maml", CHARACTERS), tmp_path / "maml", root, threads=1)
    with pytest.raises(InputError, match="maml adapts its network to each task"):
        ImageEncoder(f"polyshot:{tmp_path / 'maml'}").transform(images)
    with pytest.raises(TrainingError, match=r"no config.json"):
        ImageEncoder(f"polyshot:{tmp_path / 'nothing'}").transform(images)
    with pytest.raises(InputError, match="needs a run folder: polyshot:RUN"):
        ImageEncoder("polyshot").transform(images)


def test_characters_is_a_run_inside_the_package(run: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for its weights."""
    monkeypatch.setattr(Characters, "folder", run)
    encoder = ImageEncoder("characters")
    np.testing.assert_array_equal(encoder.transform(images), ImageEncoder(f"polyshot:{run}").transform(images))
    assert encoder.encoder.title == "Conv4, Omniglot"
    assert "MIT" in encoder.encoder.licence


def test_characters_without_weights_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Characters, "folder", tmp_path)
    with pytest.raises(DataError, match="weights of the encoder 'characters' are not in this copy of polyshot"):
        ImageEncoder("characters").fit()


def test_the_recipe_of_characters_is_how_its_weights_were_made() -> None:
    path = Characters.folder / "training.toml"
    recipe = TrainingConfig.from_mapping(read_toml(path), str(path))
    made = RunFolder(Characters.folder).config
    assert replace(made, episodes_per_epoch=None, meta_batch=None) == recipe


def test_the_weights_in_the_package_are_small_and_work() -> None:
    assert (Characters.folder / "best.safetensors").stat().st_size < 1_000_000
    assert ImageEncoder("characters", cache=None).transform(drawings(2, 1, 0)[0]).shape == (2, 64)
