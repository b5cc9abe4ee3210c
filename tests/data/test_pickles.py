"""Pickles of mini-ImageNet: plain arrays are read, and everything else is refused."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from polyshot.data import import_dataset
from polyshot.data.pickles import read_plain_pickle
from polyshot.errors import DataError


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("touch polyshot-was-here",))


@pytest.mark.parametrize("content", [_Evil(), {"data": [_Evil()]}, {"f": len}, {"p": Path("x")}])
def test_a_pickle_of_anything_but_plain_arrays_is_refused(
    content: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mini-imagenet-cache-train.pkl"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"not a pickle of plain arrays \(it asks for"):
        import_dataset("mini-imagenet", tmp_path, tmp_path / "root")
    assert not Path("polyshot-was-here").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_plain_arrays_are_unpickled_whatever_the_protocol(protocol: int, tmp_path: Path) -> None:
    content = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "b": [np.int64(3), "x", b"y"], "c": (None, 1.5)}
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    found = read_plain_pickle(path)
    np.testing.assert_array_equal(found["a"], content["a"])
    assert found["b"][:2] == [3, "x"]
    assert found["c"] == content["c"]


@pytest.mark.parametrize("content", [[1, 2], {"image_data": 1}, {"data": [[1]], "labels": [0]}])
def test_a_pickle_without_the_usual_fields_is_described(content: object, tmp_path: Path) -> None:
    (tmp_path / "train.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"train\.pkl"):
        import_dataset("mini-imagenet", tmp_path, tmp_path / "root")


def _text(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def _global(module: str, name: str) -> bytes:
    return _text(module) + _text(name) + b"\x93"


def _dtype(code: str, fields: bytes = b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff", flags: bytes = b"K\x00") -> bytes:
    """The opcodes of dtype(code, False, True) with a state."""
    made = _global("numpy", "dtype") + _text(code) + b"\x89\x88\x87R"
    return made + b"(K\x03" + _text("|") + fields + flags + b"tb"


def _array(dtype: bytes, shape: bytes = b"K\x02\x85") -> bytes:
    """A pickle of one array made from 16 bytes."""
    raw = b"\x96" + struct.pack("<QQQ", 16, 0x4141414141414141, 0x4242424242424242)
    made = _global("numpy._core.numeric", "_frombuffer") + b"(" + raw + dtype + shape + _text("C") + b"tR"
    return b"\x80\x05}" + _text("image_data") + made + b"s."


_OBJECT = _dtype("O8", flags=b"K?")
_HIDDEN_OBJECT = _dtype("V8", b"N" + _text("f") + b"\x85}" + _text("f") + _OBJECT + b"K\x00\x86sK\x08K\x01")
_HIDDEN_IN_A_NUMBER = _dtype("u8", b"N" + _text("f") + b"\x85}" + _text("f") + _OBJECT + b"K\x00\x86sK\x08K\x01")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_array(_HIDDEN_OBJECT), "type 'V8', which is not a plain number|type 'O8', which is not a plain number"),
        (_array(_HIDDEN_IN_A_NUMBER), "type 'O8', which is not a plain number"),
        (_array(_OBJECT), "type 'O8', which is not a plain number"),
        (_array(_dtype("u8", b"N" + _text("f") + b"\x85NJ\xff\xff\xff\xffJ\xff\xff\xff\xff")), "a type with fields"),
        (_array(_dtype("u8"), b"K\x03\x85"), r"shape \(3,\) does not fit"),
        (_array(_dtype("u8"), b"J\xff\xff\xff\xff\x85"), r"shape \(-1,\) does not fit"),
        (b"\x80\x04Nr\xff\xff\xff\x7f.", "stores an object under the number 2147483647"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"short.", "expected 4611686018427387904 bytes"),
        (b"\x80\x04" + _global("numpy", "dtype") + b"}" + _text("x") + b"K\x01sb.", "changes a function"),
    ],
)
def test_a_crafted_pickle_is_refused_before_anything_is_built(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"not a pickle of plain arrays .*({message})"):
        read_plain_pickle(path)


def test_the_crafted_array_is_read_when_its_type_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(_array(_dtype("u8")))
    assert read_plain_pickle(path)["image_data"].tolist() == [0x4141414141414141, 0x4242424242424242]


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_of_any_order_and_byte_order_are_read(protocol: int, tmp_path: Path) -> None:
    arrays = [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(4, dtype=">i2"),
        np.array([True, False]),
        np.zeros((0, 3), np.float32),
    ]
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps({"arrays": arrays}, protocol=protocol))
    for found, expected in zip(read_plain_pickle(path)["arrays"], arrays, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
