"""What goes wrong is said in words: which class or file, what is wrong with it, what would be right."""

import json
import os
from pathlib import Path

import numpy as np
import official
import pytest

from polyshot.data import ClassSet, EpisodeSampler, import_dataset, load, load_scenario, verify
from polyshot.data.packed import read_packed, write_packed
from polyshot.errors import DataError, InputError


def test_a_class_with_too_few_images_is_named(toy: ClassSet) -> None:
    with pytest.raises(DataError, match=r"toy: 3 of 8 classes .* 5 shots and 8 queries .*'a' \(10\), 'b' \(11\), 'c'"):
        EpisodeSampler(toy, 5, 5, 8, seed=0)


def test_fewer_classes_than_ways_is_said(toy: ClassSet) -> None:
    with pytest.raises(DataError, match=r"has 8 classes .* needs 9"):
        EpisodeSampler(toy, 5, 1, 1, seed=0, n_extra_way=4)


def test_two_classes_make_two_way_episodes_and_no_more(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        for k in range(3):
            official.photo(tmp_path / name / f"{k}.png", (9, 9, 9))
    two = load(f"folder:{tmp_path}", "all")
    assert EpisodeSampler(two, 2, 1, 2, seed=0)[0].n_way == 2
    with pytest.raises(DataError, match=r"has 2 classes \(ant, bee\), but an episode needs 5"):
        EpisodeSampler(two, 5, 1, 2, seed=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_way": 1}, "needs n_way >= 2.*got n_way=1"),
        ({"n_shot": 0}, "n_shot >= 1.*n_shot=0"),
        ({"n_query": 0}, "n_query >= 1.*n_query=0"),
        ({"n_extra_way": -1}, "n_extra_way >= 0.*n_extra_way=-1"),
        ({"seed": -1}, "seed >= 0.*seed=-1"),
        ({"n_shot": [1, 2]}, "2 numbers of shots for 5 classes; give one number, or one per class"),
        ({"n_shot": []}, r"n_shot >= 1.*n_shot=\[\]"),
    ],
)
def test_impossible_episodes_are_refused(wrong: dict[str, int], message: str, toy: ClassSet) -> None:
    with pytest.raises(InputError, match=message):
        EpisodeSampler(**{"class_set": toy, "n_way": 5, "n_shot": 1, "n_query": 1, "seed": 0, **wrong})


def test_all_broken_images_of_a_folder_are_named_at_once(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        for k in range(3):
            official.photo(tmp_path / name / f"{k}.png", (9, 99, 9))
    whole = (tmp_path / "ant" / "0.png").read_bytes()
    (tmp_path / "ant" / "0.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "bee" / "1.png").write_bytes(b"no image at all")
    (tmp_path / "bee" / "2.png").write_bytes(b"")
    with pytest.raises(DataError, match="3 of 6 images cannot be read") as caught:
        load(f"folder:{tmp_path}", "all")
    for file in ("ant/0.png", "bee/1.png", "bee/2.png"):
        assert str(tmp_path / file) in str(caught.value)


def test_a_broken_image_in_a_packed_file_is_named_with_its_class(tmp_path: Path) -> None:
    source = tmp_path / "source"
    path = import_dataset("cub", official.cub(source), tmp_path)
    with np.load(path) as file:
        arrays = dict(file)
    start = arrays["offsets"][4]
    arrays["jpeg"][start : start + 20] = 0
    np.savez(path, **arrays)
    message = "image 4 of class '004.Groove_billed_Ani'"
    with pytest.raises(DataError, match=message):
        load("cub", "test", tmp_path)
    assert load("cub", "train", tmp_path).x.shape[0] == 2  # the other classes are not touched
    assert any(message in check.detail and not check.passed for check in verify("cub", tmp_path))


def _arrays(**change: np.ndarray | None) -> dict[str, np.ndarray]:
    arrays = {
        "images": np.zeros((4, 28, 28), np.uint8),
        "labels": np.array([0, 0, 1, 1]),
        "class_names": np.array(["a", "b"]),
        **change,
    }
    return {field: array for field, array in arrays.items() if array is not None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": None}, "lacks the field labels; a set with 'images' has images, labels, class_names"),
        ({"class_names": None}, "lacks the field class_names"),
        ({"images": None}, "must have exactly one of the fields images, jpeg and X, but it has labels, class_names"),
        ({"X": np.zeros((4, 2))}, "must have exactly one of the fields"),
        ({"labels": np.array([0, 1, 1])}, "4 examples in 'images' but 3 labels"),
        ({"labels": np.array([0, 1, 1, 2])}, "labels run from 0 to 2, and there are 2 classes"),
        ({"labels": np.array([0, 1, 1, -1])}, r"labels must lie in 0\.\.1"),
        ({"labels": np.array([0.0, 1, 1, 0])}, "labels must be integers"),
        ({"images": np.zeros((4, 28, 28))}, "images must be uint8"),
        ({"images": None, "X": np.full((4, 2), np.nan)}, "NaN, infinity or values .* in 4 rows; the first is row 0"),
        ({"images": None, "X": np.full((4, 2), 1e300)}, r"values beyond 3.4e\+38 in 4 rows"),
        ({"images": None, "X": np.zeros((4, 0))}, r"X must be .* not empty; got float64 \[4, 0\]"),
        ({"images": np.zeros((4, 0, 28), np.uint8)}, r"images must be .* not empty; got uint8 \[4, 0, 28\]"),
        ({"images": np.zeros((), np.uint8)}, r"images must be .* got uint8 \[\]"),
        ({"labels": np.array(3)}, r"labels must be integers \[n\] .* not int64 \[\]"),
        ({"class_names": np.array("a")}, r"class_names must be texts \[C\], not <U1 \[\]"),
        ({"class_names": np.array([b"a", b"b"])}, "class_names must be texts"),
        ({"labels": np.array([0, 0, 1, 10**12])}, "labels run from 0 to 1000000000000, and there are 2 classes"),
        (
            {"images": None, "class_names": None, "X": np.zeros((4, 2)), "labels": np.array([0, 0, 1, 10**12])},
            "labels up to 1000000000000 for 4 examples; number the classes from 0",
        ),
        ({"images": None, "X": np.zeros((4, 2)), "labels": np.full(4, -1)}, "labels run from -1 to -1"),
        ({"wnids": np.array(["n1"])}, "1 wnids for 2 classes; give one per class"),
        ({"class_splits": np.array([1, 2])}, r"class_splits must be one text in JSON, not int64 \[2\]"),
        (
            {"images": None, "jpeg": np.zeros(9, np.uint8), "offsets": np.array(9)},
            r"offsets must be integers \[n \+ 1\]",
        ),
        ({"images": None, "jpeg": np.zeros((3, 3)), "offsets": np.array([0, 3])}, "jpeg must be uint8"),
        ({"images": None, "X": np.zeros((4, 2), int)}, "X must be floating-point"),
        (
            {"images": None, "jpeg": np.zeros(9, np.uint8), "offsets": np.array([0, 3, 2, 8, 9])},
            "offsets must rise from 0 to 9",
        ),
        ({"images": None, "jpeg": np.zeros(9, np.uint8)}, "lacks the field offsets"),
    ],
)
def test_a_malformed_npz_is_described(change: dict[str, np.ndarray | None], message: str, tmp_path: Path) -> None:
    path = tmp_path / "omniglot.npz"
    np.savez(path, **_arrays(**change))
    with pytest.raises(DataError, match=message) as caught:
        load("omniglot", "train", tmp_path)
    assert str(path) in str(caught.value)


def test_an_npz_is_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "cub.npz"
    np.savez(path, **_arrays(class_names=np.array([{"a": 1}, "b"], dtype=object)))
    with pytest.raises(DataError, match="not a readable"):
        read_packed(path)


def test_a_truncated_npz_and_a_text_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    write_packed(path, _arrays())
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="fetch or import it again"):
        read_packed(path)
    path.write_text("hello")
    with pytest.raises(DataError, match="not a readable"):
        read_packed(path)
    np.save(tmp_path / "y.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"not a readable"):
        read_packed(tmp_path / "y.npy")


def test_a_missing_data_set_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cub\.npz: no such file\. Get CUB from https.*polyshot data import cub PATH"):
        load("cub", "test", tmp_path)
    with pytest.raises(DataError, match="no such file or folder; folder is read from"):
        load(f"folder:{tmp_path / 'nowhere'}", "all")
    with pytest.raises(DataError, match="no such file or folder; embeddings is read from"):
        load(f"embeddings:{tmp_path / 'nowhere'}", "all")


def test_unknown_names_are_answered_with_the_known_ones(toy: ClassSet, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown data set 'mnist'; choose from omniglot"):
        load("mnist", "train")
    with pytest.raises(InputError, match=r"unknown scenario 'mnist'; choose from .*, cub, .*, folder:PATH, embeddings"):
        load_scenario("mnist")
    with pytest.raises(InputError, match="needs a path: folder:PATH"):
        load("folder", "all")
    with pytest.raises(InputError, match="takes no path"):
        load("cub:here", "all")
    with pytest.raises(InputError, match="unknown corruption 'fog'; choose from"):
        toy.corrupted("fog", 1, 0)
    with pytest.raises(InputError, match="severity must be 1, 2, 3, 4 or 5, not 6"):
        toy.corrupted("defocus_blur", 6, 0)
    import_dataset("cub", official.cub(tmp_path / "source"), tmp_path)
    with pytest.raises(DataError, match="unknown class split 'novel'; choose from train, validation, test, all"):
        load("cub", "novel", tmp_path)


def test_a_split_file_that_is_none_is_described(tmp_path: Path) -> None:
    official.photo(tmp_path / "a" / "x.png", (1, 1, 1))
    (tmp_path / "splits.json").write_text('["a"]')
    with pytest.raises(DataError, match=r"splits\.json: not a split file"):
        load(f"folder:{tmp_path}", "train")
    (tmp_path / "splits.json").write_text('{"train": ["zebra"]}')
    with pytest.raises(DataError, match="has none of the classes of split 'train'"):
        load(f"folder:{tmp_path}", "train")


@pytest.mark.parametrize(
    ("train", "validation", "test", "shared", "splits"),
    [
        (["a/1", "b"], ["c"], ["a/2", "b"], "b", ("train", "test")),
        (["a"], ["b", "c"], ["a/1", "a/2"], "a/1, a/2", ("train", "test")),
        (["a"], ["c", "b"], ["c"], "c", ("validation", "test")),
    ],
)
def test_splits_that_share_classes_are_refused(
    train: list[str], validation: list[str], test: list[str], shared: str, splits: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.npz"
    names = ("a/1", "a/2", "b", "c")
    np.savez(path, X=np.eye(4), labels=np.arange(4), class_names=np.array(names))
    content = {"train": train, "validation": validation, "test": test, "mine": ["a", "b"]}
    (tmp_path / "mine_splits.json").write_text(json.dumps(content))
    for split, other in (splits, splits[::-1]):
        message = f"{shared}: in split '{split}' and also in split '{other}'"
        with pytest.raises(DataError, match=message):
            load(f"embeddings:{path}", split)
        assert any(message in check.detail and not check.passed for check in verify(f"embeddings:{path}"))
    assert load(f"embeddings:{path}", "all").class_names == names
    assert load(f"embeddings:{path}", "mine").class_names == ("a/1", "a/2", "b")


def test_a_misspelt_class_of_ones_own_split_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, X=np.eye(4), labels=np.arange(4), class_names=np.array(["ant", "bee", "cow", "dog"]))
    (tmp_path / "mine_splits.json").write_text('{"train": ["ant", "bee"], "test": ["cow", "dgo", "hne"]}')
    for split in ("train", "test"):
        with pytest.raises(DataError, match=r"mine\.npz: has no class dgo, hne, .* \(.*mine_splits\.json\)"):
            load(f"embeddings:{path}", split)


def test_empty_class_folders_are_named(tmp_path: Path) -> None:
    official.photo(tmp_path / "a" / "x.png", (1, 1, 1))
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match="no images in the class folders b"):
        load(f"folder:{tmp_path}", "all")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npz"
    write_packed(path, _arrays())
    before = path.read_bytes()

    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DataError, match="cannot be written"):
        write_packed(path, _arrays(labels=np.array([1, 1, 0, 0])))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
