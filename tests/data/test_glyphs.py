import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from polyshot.data import load
from polyshot.data.loading import dataset_path, read_dataset
from polyshot.data.sets import glyphs
from polyshot.errors import InputError


@pytest.fixture
def few_classes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Draw the first forty characters only, into an empty cache."""
    every = glyphs._classes
    monkeypatch.setattr(glyphs, "_classes", lambda: itertools.islice(every(), 40))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_there_are_a_thousand_classes_of_twenty_split_by_script() -> None:
    packed = read_dataset("glyphs")
    sizes = np.bincount(packed.labels)
    assert len(sizes) >= 1000
    assert sizes.min() >= 20
    scripts = {split: {name.split("/")[0] for name in load("glyphs", split).class_names} for split in ("train", "test")}
    assert not scripts["train"] & scripts["test"]
    assert {"GREEK", "ARMENIAN", "HEBREW"} <= scripts["test"]
    assert len(load("glyphs", "train").class_names) >= 1000


def test_the_same_seed_draws_the_same_images(few_classes: Path) -> None:
    one, two, other = glyphs.draw(3), glyphs.draw(3), glyphs.draw(4)
    np.testing.assert_array_equal(one["images"], two["images"])
    assert (one["images"] != other["images"]).any()
    assert one["images"].shape == (40 * glyphs.EXAMPLES, 28, 28)
    assert one["images"].reshape(len(one["labels"]), -1).max(axis=1).min() > 60  # no example is blank


def test_the_set_is_kept_in_the_cache_and_read_from_there(few_classes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = read_dataset("glyphs")
    path = dataset_path("glyphs")
    assert path.parent == few_classes / "polyshot" / "built-in"
    monkeypatch.setattr(glyphs, "_classes", None)
    np.testing.assert_array_equal(read_dataset("glyphs").arrays["images"], drawn.arrays["images"])


def test_a_damaged_file_in_the_cache_is_drawn_again(few_classes: Path) -> None:
    drawn = read_dataset("glyphs")
    dataset_path("glyphs").write_bytes(b"damaged")
    np.testing.assert_array_equal(read_dataset("glyphs").arrays["images"], drawn.arrays["images"])
    assert dataset_path("glyphs").stat().st_size > 1000


def test_a_cache_that_cannot_be_written_costs_only_the_drawing(
    few_classes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (few_classes / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(few_classes / "file"))
    assert len(read_dataset("glyphs")) == 40 * glyphs.EXAMPLES


def test_letters_that_look_the_same_are_one_class() -> None:
    names = {name for name, _ in glyphs._classes()}
    assert "LATIN/CAPITAL LETTER A" in names
    assert "GREEK/CAPITAL LETTER ALPHA" not in names
    assert "CYRILLIC/CAPITAL LETTER A" not in names
    assert "GREEK/CAPITAL LETTER OMEGA" in names


def test_jitter_keeps_the_ink_inside() -> None:
    master = torch.zeros(200, 56, 56, dtype=torch.uint8)
    master[:, 18:38, 18:38] = 255
    images = glyphs.jitter(master, np.random.default_rng(0)).float()
    ink = images.sum(dim=(1, 2)) / 255
    assert (ink > 50).all()
    assert (ink < 200).all()
    assert images.std(dim=0).mean() > 10


def test_there_is_nothing_to_import() -> None:
    from polyshot.data import import_dataset

    with pytest.raises(InputError, match="built in"):
        import_dataset("glyphs", Path("."))
