"""Damaged data files: each reader gives a right answer, or an error of ours that names the file."""

import io
import json
import pickle
import shutil
import warnings
import zipfile

import numpy as np
import pytest
import torch
from fuzzing import attempt_file, fuzz_settings
from hypothesis import given
from hypothesis import strategies as st
from mutations import TEXTS, damaged_bytes, damaged_tree, json_text
from PIL import Image

from polyshot.app import Columns, read_table
from polyshot.app import read_queries as read_app_queries
from polyshot.data import import_dataset, load, verify
from polyshot.data.images import FORMATS
from polyshot.data.packed import read_packed, write_packed
from polyshot.data.pickles import read_plain_pickle
from polyshot.errors import DataError
from polyshot.runs.prediction_files import read_queries, read_support
from tests.data import official

ARRAYS = {
    "X": np.eye(6, 3, dtype=np.float32),
    "images": np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2),
    "labels": np.array([0, 0, 1, 1, 2, 2]),
    "class_names": np.array(["ant", "bee", "cow"]),
    "wnids": np.array(["n1", "n2", "n3"]),
    "class_splits": np.array('{"train": ["ant"], "validation": ["bee"], "test": ["cow"]}'),
}
ODD_ARRAYS = [
    np.array(3), np.array("text"), np.zeros((0, 3)), np.zeros((6, 0)), np.zeros(6), np.full((6, 3), np.nan),
    np.full((6, 3), 1e300), np.full(6, 10**12), np.full(6, -1), np.full(6, -5), np.arange(6.0), np.array([True] * 6),
    np.array(["a"] * 6), np.zeros((6, 2, 2, 3), np.uint8), np.zeros((6, 3), np.complex128), np.array([b"x"] * 6),
    np.array(["2020-01-01"] * 6, "M8[D]"), np.zeros((6, 3), np.float16), np.array(TEXTS[:6]), np.array(["", "", ""]),
    np.full(6, 2**64 - 1, np.uint64), np.zeros((1,) * 20), np.array(["ant", "ant", "ant"]), np.array("[" * 10_000),
    np.array('{"train": {"ant": 1}, "splits": 3}'), np.array('{"splits": {"test": ["cow"]}, "counts": [1]}'),
]  # fmt: skip


def read_npz(path):
    """Everything that reads an npz."""
    packed = attempt_file(lambda: read_packed(path), path)
    name = f"{'embeddings' if packed is None or packed.has_embeddings else 'folder'}:{path}"
    loaded = attempt_file(lambda: load(name, "test"), path)
    for call in (lambda: verify(name), lambda: read_support(path), lambda: read_queries(path)):
        attempt_file(call, path)
    for call in (lambda: read_table(path), lambda: read_app_queries(path)):
        attempt_file(call, path)
    if loaded is not None and len(loaded.x):
        assert torch.isfinite(loaded.x.float()).all()
        assert loaded.y.min() == 0
        assert loaded.y.max() == len(loaded.class_names) - 1


@fuzz_settings(40)
@given(st.data())
def test_an_npz_of_odd_arrays(tmp_path_factory, data):
    fields = data.draw(st.sets(st.sampled_from(list(ARRAYS)), min_size=1))
    arrays = {field: ARRAYS[field] for field in fields} | {"labels": ARRAYS["labels"]}
    for _ in range(data.draw(st.integers(0, 2))):
        field = data.draw(st.sampled_from([*ARRAYS, "sha256", "offsets", "jpeg", "other"]))
        arrays[field] = data.draw(st.sampled_from(ODD_ARRAYS))
    path = tmp_path_factory.getbasetemp() / "odd.npz"
    np.savez(path, **arrays)
    read_npz(path)


@fuzz_settings(40)
@given(st.data())
def test_a_damaged_npz(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    kind = data.draw(st.sampled_from(["X", "images"]))
    write_packed(path, {k: v for k, v in ARRAYS.items() if k in (kind, "labels", "class_names", "class_splits")})
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    else:  # one member, with a checksum of the zip that fits
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        chosen = data.draw(st.sampled_from(list(members)))
        members[chosen] = data.draw(damaged_bytes(members[chosen]))
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    read_npz(path)


@fuzz_settings(40)
@given(st.data())
def test_a_damaged_split_file(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "splits"
    folder.mkdir(exist_ok=True)
    path = folder / "own.npz"
    if not path.exists():
        write_packed(path, {field: ARRAYS[field] for field in ("X", "labels", "class_names")})
    splits = {"provenance": "ours", "splits": {"test": ["cow"], "train": ["ant"]}, "counts": {"test": 1, "train": 1}}
    file = folder / "own_splits.json"
    tree = data.draw(damaged_tree(splits)) if data.draw(st.booleans()) else splits
    file.write_bytes(
        data.draw(damaged_bytes(json.dumps(splits).encode())) if tree is splits else json_text(tree).encode()
    )
    for call in (lambda: load(f"embeddings:{path}", "test"), lambda: verify(f"embeddings:{path}")):
        attempt_file(call, path, file)


def encoded(kind):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


IMAGES = {kind: encoded(kind) for kind in FORMATS}


@fuzz_settings(80)
@given(st.data())
def test_a_damaged_image(tmp_path_factory, data):
    kind = data.draw(st.sampled_from(FORMATS))
    folder = tmp_path_factory.getbasetemp() / "photos"
    path = folder / "ant" / "photo.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.draw(damaged_bytes(IMAGES[kind])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's own
        found = attempt_file(lambda: load(f"folder:{folder}", "all", size=8), path)
        assert found is None or found.x.dtype == torch.uint8


TABLE = b'id,text,n,label\n1,my card is lost,0.5,card\n2,"a, b",1e3,card\n3,bye,-2,other\n4,hello,7,\n'


@fuzz_settings(50)
@given(st.data())
def test_a_damaged_table(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / f"table{data.draw(st.sampled_from(['.csv', '.tsv', '.parquet']))}"
    path.write_bytes(data.draw(damaged_bytes(TABLE)))
    for columns in (Columns(text="text", label="label", id="id"), Columns(numbers=("n",), label="label")):
        found = attempt_file(lambda columns=columns: read_table(path, columns), path)
        if found is not None:
            (examples, labels), queries = found
            assert len(examples) == len(labels) >= 2
            assert len(queries) >= 1


@pytest.mark.parametrize("name", ["omniglot", "emnist", "cub", "mini-imagenet"])
@fuzz_settings(8)
@given(data=st.data())
def test_damaged_official_files(tmp_path_factory, name, data):
    path = folder = tmp_path_factory.getbasetemp() / "official"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if name == "omniglot":
        file = official.omniglot(folder) / "images_background.zip"
    elif name == "emnist":
        path = file = official.emnist_zip(official.emnist_idx(folder, (1, 1)), folder / "gzip.zip")
    elif name == "cub":
        official.cub(folder)
        file = data.draw(st.sampled_from(sorted(folder.rglob("*.txt"))))
    else:
        official.mini_csv(folder)
        file = data.draw(st.sampled_from(sorted(folder.rglob("*.csv"))))
    file.write_bytes(data.draw(damaged_bytes(file.read_bytes())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attempt_file(lambda: import_dataset(name, path, folder / "root"), folder)


PICKLE = pickle.dumps({"image_data": np.zeros((2, 3, 3, 3), np.uint8), "class_dict": {"n1": [0, 1]}}, protocol=2)


@fuzz_settings(80)
@given(st.data())
def test_a_damaged_pickle(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "cache.pkl"
    path.write_bytes(data.draw(damaged_bytes(PICKLE)))
    attempt_file(lambda: read_plain_pickle(path), path)


def test_an_undamaged_table_is_read(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(TABLE)
    (examples, labels), queries = read_table(path, Columns(text="text", label="label"))
    assert (len(examples), labels, len(queries)) == (3, ["card", "card", "other"], 1)
    with pytest.raises(DataError, match="no column"):
        read_table(path, Columns(text="words", label="label"))
