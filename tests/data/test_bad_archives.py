"""Official downloads that are missing, wrong or damaged: a DataError says what to do."""

import zipfile
from pathlib import Path

import numpy as np
import official
import pytest

from polyshot.data import DATASETS, import_dataset
from polyshot.data.images import ignore_progress
from polyshot.data.packed import write_packed
from polyshot.errors import DataError


@pytest.mark.parametrize("name", ["omniglot", "emnist", "chars74k", "cub", "mini-imagenet", "tiny-imagenet", "folder"])
def test_a_folder_without_the_official_files_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        import_dataset(name, tmp_path, tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", ["omniglot", "emnist", "cub", "folder", "embeddings"])
def test_a_path_that_is_not_there_is_said(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: no such file or folder; .* is read from"):
        import_dataset(name, tmp_path / "nowhere", tmp_path)


def test_wrong_archives_are_recognised(tmp_path: Path) -> None:
    official.omniglot(tmp_path)
    with zipfile.ZipFile(tmp_path / "images_evaluation.zip", "w") as archive:
        archive.writestr("strokes_evaluation/x.txt", "1")
    with pytest.raises(DataError, match=r"images_evaluation\.zip: a different archive"):
        import_dataset("omniglot", tmp_path, tmp_path / "root")
    (tmp_path / "images_evaluation.zip").write_text("not a zip")
    with pytest.raises(DataError, match="missing, or not a complete zip"):
        import_dataset("omniglot", tmp_path, tmp_path / "root")
    with pytest.raises(DataError, match=r"no emnist-byclass-train-images-idx3-ubyte\.gz in it"):
        import_dataset("emnist", tmp_path / "images_background.zip", tmp_path / "root")


def test_cut_off_emnist_files_are_recognised(tmp_path: Path) -> None:
    official.emnist_idx(tmp_path)
    file = tmp_path / "emnist-byclass-test-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(DataError, match=f"{file.name} is not a complete gzip file"):
        import_dataset("emnist", tmp_path, tmp_path / "root")


def test_matlab_files_are_refused_because_their_reader_crashes_on_damaged_ones(tmp_path: Path) -> None:
    (tmp_path / "emnist-byclass.mat").write_bytes(b"MATLAB 5.0" + bytes(200))
    with pytest.raises(DataError, match=r"emnist-byclass\.mat: MATLAB files are not read.* give gzip\.zip"):
        import_dataset("emnist", tmp_path / "emnist-byclass.mat", tmp_path / "root")


@pytest.mark.parametrize("name", ["omniglot", "emnist", "npz"])
def test_any_flipped_byte_of_an_archive_is_harmless_or_a_message(name: str, tmp_path: Path) -> None:
    if name == "omniglot":
        file = official.omniglot(tmp_path) / "images_background.zip"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("images_background/Greek/character01/0001_01.png", official.omniglot_drawing(1))
    elif name == "emnist":
        file = official.emnist_zip(official.emnist_idx(tmp_path, (1, 1)), tmp_path / "gzip.zip")
    else:
        file = tmp_path / "x.npz"
        write_packed(file, {"X": np.eye(2), "labels": np.arange(2)})
    content, messages = file.read_bytes(), []
    path = tmp_path if name == "omniglot" else file
    reader = DATASETS["embeddings" if name == "npz" else name].read
    damaged = [content[:n] for n in (0, 4, 20, len(content) // 2, len(content) - 1)]
    damaged += [content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in range(len(content))]
    for part in damaged:
        file.write_bytes(part)
        try:
            reader(path, 28, ignore_progress)
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > len(content) / 4
    assert all(str(tmp_path) in message for message in messages)


def test_an_empty_gzip_file_of_emnist_is_described(tmp_path: Path) -> None:
    official.emnist_idx(tmp_path)
    (tmp_path / "emnist-byclass-test-images-idx3-ubyte.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"test-images-idx3-ubyte\.gz is not a complete gzip file"):
        import_dataset("emnist", tmp_path, tmp_path / "root")


def test_csv_files_that_name_missing_images_are_described(tmp_path: Path) -> None:
    official.mini_csv(tmp_path)
    gone = next((tmp_path / "images").iterdir())
    gone.unlink()
    with pytest.raises(DataError, match=f"lacks 1 images that the csv files name, such as {gone.name}"):
        import_dataset("mini-imagenet", tmp_path, tmp_path / "root")
