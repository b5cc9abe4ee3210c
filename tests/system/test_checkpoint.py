import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from polyshot.errors import DataError
from polyshot.estimator import OneVsEachClassifier
from polyshot.system.checkpoint import _digest, load_checkpoint, save_checkpoint
from polyshot.system.files import remove_leftovers, replacing, write_atomically

TENSORS = {
    "weights": torch.tensor([[1.0, -0.0, 1e-45], [torch.inf, torch.nan, 0.1]]),
    "channels_last": torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last
    ),
    "step": torch.tensor(7),
    "double": torch.tensor(0.1, dtype=torch.float64),
    "empty": torch.empty(0, 3),
}
RECORD = {"done": 12, "losses": [0.1, 1 / 3], "note": "Pólya"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "x.safetensors", TENSORS, RECORD)
    return tmp_path / "x.safetensors"


def test_tensors_and_record_come_back_to_the_bit(saved: Path) -> None:
    tensors, record = load_checkpoint(saved)
    assert record == RECORD
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        assert tensors[name].numpy().tobytes() == tensor.contiguous().numpy().tobytes()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no file names that are not UTF-8")
def test_a_checkpoint_in_a_folder_whose_name_is_not_utf8_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9" / "x.safetensors"
    save_checkpoint(path, TENSORS, RECORD)
    assert load_checkpoint(path)[1] == RECORD


@pytest.mark.parametrize("name", ["x" * 250, "é" * 120])
def test_a_file_of_a_long_name_is_written_and_its_leftovers_are_removed(name: str, tmp_path: Path) -> None:
    with replacing(tmp_path / name):
        (half,) = tmp_path.iterdir()
        shutil.copy(half, tmp_path / f"{half.name[:-10]}killed.part")
    assert len([*tmp_path.iterdir()]) == 2
    remove_leftovers(tmp_path, ["y" * 250])
    assert len([*tmp_path.iterdir()]) == 2
    remove_leftovers(tmp_path, [name])
    assert [*tmp_path.iterdir()] == [tmp_path / name]


def test_a_truncated_checkpoint_is_an_error_wherever_it_was_cut(saved: Path) -> None:
    content = saved.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 4, len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"x\.safetensors: .*cut short"):
            load_checkpoint(saved)


def test_any_flipped_byte_is_noticed(saved: Path) -> None:
    content, noticed = bytearray(saved.read_bytes()), 0
    for place in range(len(content)):
        content[place] ^= 1
        saved.write_bytes(content)
        try:
            tensors, record = load_checkpoint(saved)
        except DataError:
            noticed += 1
        else:  # a byte without meaning, such as padding
            assert record == RECORD
            assert all(tensors[n].numpy().tobytes() == t.contiguous().numpy().tobytes() for n, t in TENSORS.items())
        content[place] ^= 1
    assert noticed > 0.9 * len(content)


def test_foreign_files_are_errors(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(DataError, match="but not one that polyshot wrote as polyshot-checkpoint-1"):
        load_checkpoint(tmp_path / "foreign.safetensors")
    save_checkpoint(tmp_path / "other.safetensors", {"a": torch.ones(2)}, {}, "another kind 1")
    with pytest.raises(DataError, match="not one that polyshot wrote as"):
        load_checkpoint(tmp_path / "other.safetensors")
    (tmp_path / "text").write_text("hello, this is no checkpoint at all, but long enough")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        load_checkpoint(tmp_path / "text")
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match="no such file"):
            load_checkpoint(path)


@pytest.mark.parametrize("record", ["", "{'done': 1}", "[]"])
def test_a_record_that_is_no_json_object_is_an_error(record: str, tmp_path: Path) -> None:
    about = {"format": "polyshot-checkpoint-1", "record": record, "sha256": _digest({}, record)}
    save_file({}, tmp_path / "x.safetensors", about)
    with pytest.raises(DataError, match=r"x\.safetensors: .*record .*; restore it from a copy, or delete it"):
        load_checkpoint(tmp_path / "x.safetensors")


def test_a_classifier_with_a_part_missing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, {"X": torch.zeros(3, 2)}, {"classes": [1, 2]}, "polyshot.OneVsEachClassifier 5")
    with pytest.raises(DataError, match=r"x\.safetensors: not a readable classifier \('covariance'\); save it again"):
        OneVsEachClassifier.load(path)


def test_a_crash_while_writing_leaves_the_old_file_and_nothing_else(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def crash(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("polyshot.system.files.os.fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(saved, {"other": torch.zeros(100)}, {})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_place_that_cannot_be_written_to_is_an_error(saved: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        write_atomically(saved / "below a file" / "x", b"")
