"""Every reader on small files in the official format, through import, load and verify."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import official
import pytest
from PIL import Image

from polyshot.data import import_dataset, load, verify
from polyshot.data.images import encode_square
from polyshot.data.loading import read_dataset
from polyshot.data.packed import own_checksums, read_packed
from polyshot.data.sets.emnist import CHARACTERS
from polyshot.errors import DataError, InputError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def test_omniglot_zips_become_28_pixels_in_class_order(source: Path, tmp_path: Path) -> None:
    import_dataset("omniglot", official.omniglot(source), tmp_path)
    packed = read_dataset("omniglot", tmp_path)
    assert packed.class_names[:3] == ("Greek/character01", "Greek/character02", "Latin/character01")
    assert packed.arrays["images"].shape == (10, 28, 28)
    assert set(np.unique(packed.arrays["images"])) == {0, 255}
    assert packed.arrays["class_split"].tolist() == [0, 0, 0, 1, 1]
    assert packed.arrays["alphabet_names"][packed.arrays["class_alphabet"]].tolist() == [
        "Greek",
        "Greek",
        "Latin",
        "Angelic",
        "Angelic",
    ]


@pytest.mark.parametrize("name", ["omniglot", "omniglot-gray"])
def test_omniglot_is_loaded_with_bright_ink_where_it_was_drawn(name: str, source: Path, tmp_path: Path) -> None:
    import_dataset(name, official.omniglot(source), tmp_path)
    everything = load(name, "all-but-latin", tmp_path)
    assert everything.class_names == (
        "Greek/character01",
        "Greek/character02",
        "Angelic/character01",
        "Angelic/character02",
    )
    assert everything.x.float().mean() < 80
    columns = everything.x.float().mean(dim=(1, 2)).argmax(dim=1)
    expected = np.array([15, 15, 30, 30, 60, 60, 75, 75]) + 4
    np.testing.assert_allclose(columns.numpy(), expected * 28 / 105, atol=1.5)


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_emnist_files_are_turned_upright(form: str, source: Path, tmp_path: Path) -> None:
    paths: dict[str, Callable[[], Path]] = {
        "folder": lambda: official.emnist_idx(source),
        "zip": lambda: official.emnist_zip(official.emnist_idx(source), tmp_path / "gzip.zip"),
    }
    import_dataset("emnist", paths[form](), tmp_path)
    packed = read_dataset("emnist", tmp_path)
    images, labels = official.emnist_pixels(62)
    np.testing.assert_array_equal(packed.arrays["images"][:62], images)
    np.testing.assert_array_equal(packed.labels, [*labels, *range(10)])
    assert load("emnist", "validation", tmp_path).class_names == tuple(CHARACTERS[::2])
    assert load("emnist", "test", tmp_path).class_names == tuple(CHARACTERS[1::2])


def test_chars74k_folder_is_centred_with_bright_ink(source: Path, tmp_path: Path) -> None:
    import_dataset("chars74k", official.chars74k(source), tmp_path)
    packed = read_dataset("chars74k", tmp_path)
    assert packed.labels.tolist() == [0, 10]
    image = packed.arrays["images"][0].astype(float)
    assert image.mean() < 80
    rows, columns = np.indices(image.shape)
    for index in (rows, columns):
        assert abs((index * image).sum() / image.sum() - 13.5) < 1


def test_cub_folder_keeps_class_names_and_centre(source: Path, tmp_path: Path) -> None:
    import_dataset("cub", official.cub(source), tmp_path)
    train = load("cub", "train", tmp_path)
    assert train.class_names == ("001.Black_footed_Albatross",)
    assert train.x.shape == (2, 3, 84, 84)
    np.testing.assert_allclose(train.x[0, :, 40, 40].numpy(), [60, 40, 200], atol=3)
    assert load("cub", "test", tmp_path).class_names == ("004.Groove_billed_Ani",)
    packed = read_dataset("cub", tmp_path)
    assert packed.arrays["image_id"].tolist() == [1, 2, 3, 4, 5, 6]


def test_cub_may_be_stored_larger(source: Path, tmp_path: Path) -> None:
    import_dataset("cub", official.cub(source), tmp_path, size=96)
    assert load("cub", "train", tmp_path).x.shape == (2, 3, 96, 96)


def test_tiny_imagenet_folder_goes_by_wordnet_id(source: Path, tmp_path: Path) -> None:
    import_dataset("tiny-imagenet", official.tiny_imagenet(source), tmp_path)
    assert load("tiny-imagenet", "test", tmp_path).class_names == ("goldfish",)
    assert load("tiny-imagenet", "train", tmp_path).class_names == ("boa",)
    assert load("tiny-imagenet", "train", tmp_path).x.shape == (2, 3, 64, 64)


MINI_FORMS: dict[str, Callable[[Path], Path]] = {
    "folders": official.mini_folders,
    "folders in parts": lambda p: official.mini_folders(p, ("train", "val", "test")),
    "csv": official.mini_csv,
    "csv, nested images": lambda p: official.mini_csv(p, nested=True),
    "class_dict pickles": lambda p: official.mini_pickles(p, "class_dict"),
    "catname2label pickles": lambda p: official.mini_pickles(p, "catname2label", protocol=4),
    "label pickles": lambda p: official.mini_pickles(p, "labels", protocol=5),
}


@pytest.mark.parametrize("form", MINI_FORMS)
def test_mini_imagenet_forms_give_the_published_split(form: str, source: Path, tmp_path: Path) -> None:
    import_dataset("mini-imagenet", MINI_FORMS[form](source), tmp_path)
    for split in ("train", "validation", "test"):
        published = sorted(official.MINI[split])
        found = load("mini-imagenet", split, tmp_path).class_names
        assert list(found) == (published if "pickles" in form else published[:2])


def test_mini_imagenet_pickles_lose_no_pixel(source: Path, tmp_path: Path) -> None:
    import_dataset("mini-imagenet", official.mini_pickles(source, "class_dict"), tmp_path)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (128, 6, 6, 3), dtype=np.uint8)
    train = load("mini-imagenet", "train", tmp_path)
    np.testing.assert_array_equal(train.x.permute(0, 2, 3, 1).numpy(), images)


def test_a_jpeg_of_the_right_size_is_kept_byte_for_byte(tmp_path: Path) -> None:
    path = official.photo(tmp_path / "a.jpg", (1, 2, 3), (84, 84))
    assert encode_square(path, 84) == path.read_bytes()


def test_a_folder_of_any_image_types_is_a_data_set(source: Path, tmp_path: Path) -> None:
    for name in ("cat", "dog", "hen"):
        for ending in ("jpg", "png", "bmp", "gif", "webp"):
            official.photo(source / name / f"{name}.{ending}", (200, 100, 50), (120, 100))
    (source / "cat" / "notes.txt").write_text("not an image")
    Image.new("RGBA", (90, 90)).save(source / "cat" / "transparent.png")
    everything = load(f"folder:{source}", "all")
    assert everything.class_names == ("cat", "dog", "hen")
    assert everything.class_sizes.tolist() == [6, 5, 5]
    assert everything.transform(everything.x, np.random.default_rng(0)).shape == (16, 3, 84, 84)
    (source / "splits.json").write_text('{"train": ["cat", "hen"], "test": ["dog"]}')
    assert load(f"folder:{source}", "train").class_names == ("cat", "hen")
    import_dataset("folder", source, tmp_path / "root")
    assert load("folder:source", "test", tmp_path / "root").class_names == ("dog",)


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 40))
    image.paste((255, 255, 255), (0, 0, 40, 20))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        image.save(tmp_path / name / "x.jpg", exif=exif)
    first = load(f"folder:{tmp_path}", "all").x[0].float()
    assert first[:, :20].mean() < 20
    assert first[:, -20:].mean() > 230


def test_embeddings_leave_out_of_scope_rows_out_of_the_classes(tmp_path: Path) -> None:
    X = np.arange(12, dtype=np.float16).reshape(6, 2)
    path = tmp_path / "mine.npz"
    np.savez(path, X=X, labels=np.array([1, 0, -1, 1, 0, -1]), class_names=np.array(["no", "yes"]))
    everything = load(f"embeddings:{path}", "all")
    assert everything.class_names == ("no", "yes")
    np.testing.assert_array_equal(everything.x.numpy(), X[[1, 4, 0, 3]])
    (tmp_path / "mine_splits.json").write_text('{"train": ["no"], "test": ["yes"]}')
    assert load("embeddings:mine", "test", tmp_path).class_names == ("yes",)
    import_dataset("embeddings", path, tmp_path / "root")
    assert own_checksums(read_packed(tmp_path / "root" / "mine.npz")).keys() == {
        "X",
        "labels",
        "class_names",
        "class_splits",
    }


def test_import_takes_the_split_file_into_the_packed_file(source: Path, tmp_path: Path) -> None:
    np.savez(source / "mine.npz", X=np.eye(4), labels=np.arange(4))
    for k in range(4):
        official.photo(source / "mine" / str(k) / "x.png", (9, 9, 9))
    held_out = '{"train": ["0", "1"], "test": ["2", "3"]}'
    for name, path, splits in (
        ("embeddings", source / "mine.npz", source / "mine_splits.json"),
        ("folder", source / "mine", source / "mine" / "splits.json"),
    ):
        splits.write_text(held_out)
        import_dataset(name, path, tmp_path)
        assert load(f"{name}:mine", "train", tmp_path).class_names == ("0", "1")
        splits.unlink()
        import_dataset(name, path, tmp_path)
        assert load(f"{name}:mine", "train", tmp_path).class_names == ("0", "2")
        splits.write_text("[]")
        assert not list(tmp_path.glob("*.json"))
        before = (tmp_path / "mine.npz").read_bytes()
        with pytest.raises(DataError, match="not a split file"):
            import_dataset(name, path, tmp_path)
        assert (tmp_path / "mine.npz").read_bytes() == before


def test_splits_in_a_packed_file_and_beside_it_are_not_mixed_up(source: Path, tmp_path: Path) -> None:
    np.savez(source / "mine.npz", X=np.eye(4), labels=np.arange(4))
    import_dataset("embeddings", source / "mine.npz", tmp_path)
    (tmp_path / "mine_splits.json").write_text('{"train": ["0"]}')
    with pytest.raises(DataError, match=r"holds class splits, and so does .*mine_splits\.json; delete"):
        load("embeddings:mine", "train", tmp_path)


def test_a_packed_file_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", X=np.eye(4), labels=np.arange(4))
    with pytest.raises(DataError, match=r"mine\.npz: holds embeddings, but folder is a set of images"):
        load(f"folder:{tmp_path / 'mine.npz'}", "all")


def test_own_data_keep_their_whole_name_and_never_take_that_of_another_set(source: Path, tmp_path: Path) -> None:
    np.savez(source / "cub.npz", X=np.eye(2), labels=np.arange(2))
    for name in ("birds.2020", "birds.2021", "tiny_imagenet"):
        official.photo(source / name / f"class of {name}" / "x.png", (9, 9, 9))
    for name in ("birds.2020", "birds.2021"):
        assert import_dataset("folder", source / name, tmp_path) == tmp_path / f"{name}.npz"
        assert load(f"folder:{name}", "all", tmp_path).class_names == (f"class of {name}",)
    (tmp_path / "cub.npz").write_text("birds")
    for kind, name in (("embeddings", "cub.npz"), ("folder", "tiny_imagenet")):
        with pytest.raises(InputError, match=f"{name}: would become .*npz, the file of the data set .*; rename it"):
            import_dataset(kind, source / name, tmp_path)
    assert (tmp_path / "cub.npz").read_text() == "birds"
    np.savez(source / "embeddings.npz", X=np.eye(2), labels=np.arange(2))
    import_dataset("embeddings", source / "embeddings.npz", tmp_path)
    assert load("embeddings:embeddings", "all", tmp_path).class_names == ("0", "1")


def test_own_data_without_a_split_file_is_split_by_class_number_as_cub_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, X=np.zeros((9, 2), np.float32), labels=np.arange(9))
    names = {split: load(f"embeddings:{path}", split).class_names for split in ("train", "validation", "test")}
    assert names == {"train": ("0", "2", "4", "6", "8"), "validation": ("1", "5"), "test": ("3", "7")}


def test_import_reports_its_progress(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    import_dataset("cub", official.cub(source), tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]


def test_verify_finds_what_an_import_lacks(source: Path, tmp_path: Path) -> None:
    import_dataset("cub", official.cub(source), tmp_path)
    failed = {check.what: check.detail for check in verify("cub", tmp_path) if not check.passed}
    assert failed["classes"] == "3, but expected 200"
    assert failed["split train"] == "1, but expected 100"
    assert "checksums" not in failed


def test_verify_finds_a_changed_array(source: Path, tmp_path: Path) -> None:
    path = import_dataset("omniglot", official.omniglot(source), tmp_path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["images"][0, 0, 0] ^= 1
    np.savez(path, **arrays)
    checks = {check.what: check for check in verify("omniglot", tmp_path)}
    assert not checks["checksums"].passed
    assert "images" in checks["checksums"].detail
