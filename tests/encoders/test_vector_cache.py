import os
import sqlite3
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stand_ins import Lengths, MeanColour

from polyshot.encoders import ImageEncoder, TextEncoder, VectorCache
from polyshot.errors import DataError
from processes import Processes


def items_of(batch: int) -> list[bytes]:
    return [(1000 * batch + i).to_bytes(32, "big") for i in range(20)]


def write(folder: Path, written: Path, batches: int) -> None:
    """Write batches of vectors, and read each back; `written` gets a byte for each."""
    warnings.simplefilter("error")
    with VectorCache(folder) as cache, written.open("wb", buffering=0) as file:
        for batch in range(batches):
            cache.put("model", "title", {item: np.full(64, batch, np.float32) for item in items_of(batch)})
            found = cache.get("model", items_of(batch))
            assert len(found) == 20
            assert all((vector == batch).all() for vector in found.values())
            file.write(b".")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.lists(st.text(max_size=8), min_size=1, max_size=6), min_size=1, max_size=4))
def test_vectors_are_the_same_with_and_without_and_nothing_is_encoded_twice(calls, tmp_path: Path) -> None:
    folder = tmp_path / str(time.monotonic_ns())
    encoder = Lengths()
    for texts in calls:
        cached = TextEncoder(encoder, cache=folder, batch_size=2).transform(texts)
        np.testing.assert_array_equal(cached, TextEncoder(Lengths(), cache=None).transform(texts))
    # compared as bytes: a lone surrogate is encoded as a question mark
    assert len(encoder.seen) == len({text.encode("utf-8", "replace") for texts in calls for text in texts})


def test_images_are_known_by_their_content(photos: list[Path], tmp_path: Path) -> None:
    encoder = MeanColour()
    first = ImageEncoder(encoder).transform(photos)
    photos[0].rename(tmp_path / "renamed.png")
    again = ImageEncoder(encoder).transform([tmp_path / "renamed.png", *photos[1:]])
    np.testing.assert_array_equal(first, again)
    assert encoder.n_encoded == 4
    photos[1].write_bytes(photos[2].read_bytes())
    assert (ImageEncoder(encoder).transform([photos[1]]) == first[2]).all()


def test_other_weights_are_another_model() -> None:
    one, other, none = Lengths("one"), Lengths("other"), Lengths(None)
    for encoder in (one, other, none, one, other, none):
        TextEncoder(encoder).transform(["text"])
    assert [len(encoder.seen) for encoder in (one, other, none)] == [1, 1, 2]


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert VectorCache().path == tmp_path / "xdg" / "polyshot" / "encoders" / "vectors-1.sqlite"
    TextEncoder(Lengths()).transform(["text"])
    assert VectorCache().path.stat().st_size == VectorCache().n_bytes > 0
    TextEncoder(Lengths(), cache=str(tmp_path / "own")).transform(["text"])
    assert VectorCache(tmp_path / "own").n_bytes > 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    TextEncoder(Lengths(), cache=None).transform(["text"])
    assert not (tmp_path / "none").exists()


def test_usage_and_clearing() -> None:
    cache = VectorCache()
    assert cache.usage() == []
    TextEncoder(Lengths()).transform(["a", "b", "a"])
    assert cache.usage() == [("lengths", 2, 16)]
    VectorCache().clear()  # while the other one is open
    assert cache.usage() == []
    TextEncoder(Lengths()).transform(["a"])
    assert cache.usage() == [("lengths", 1, 8)]
    cache.close()


def test_many_more_keys_than_one_query_takes() -> None:
    texts = [str(i) for i in range(1700)]
    encoder = Lengths()
    for _ in range(2):
        TextEncoder(encoder, batch_size=1700).transform(texts)
    assert len(encoder.seen) == 1700


def test_a_damaged_vector_is_encoded_again() -> None:
    encoder = Lengths()
    TextEncoder(encoder).transform(["aa", "b"])
    with sqlite3.connect(VectorCache().path) as connection:
        connection.execute("UPDATE vectors SET vector = x'0000000000000000'")
    connection.close()
    for _ in range(2):
        assert TextEncoder(encoder).transform(["aa", "b"]).tolist() == [[2, 2], [1, 0]]
    assert len(encoder.seen) == 4


def test_a_damaged_file_costs_a_warning_and_can_be_cleared() -> None:
    TextEncoder(Lengths()).transform(["aa"])
    VectorCache().path.write_bytes(b"no database at all" * 100)
    with pytest.warns(UserWarning, match=r"the cache cannot be used .*VectorCache\(\).clear\(\) deletes it") as caught:
        assert TextEncoder(Lengths(), batch_size=1).transform(["aa", "b"]).tolist() == [[2, 2], [1, 0]]
    assert len(caught) == 1
    VectorCache().clear()
    assert TextEncoder(Lengths()).transform(["aa"]).tolist() == [[2, 2]]


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        (b"vectorsvectors", b"vec\xfforsvectors"),  # which sqlite quotes in a message that is not UTF-8
        (b"checksum INTEGER", b"chexksum INTEGER"),  # another column, which no DELETE mends
        (b"SQLite format 3\0", b"SQLite format 4\0"),
    ],
)
def test_a_file_with_other_tables_costs_a_warning_and_can_be_cleared(part: bytes, damage: bytes) -> None:
    TextEncoder(Lengths()).transform(["aa"])
    path = VectorCache().path
    assert part in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(part, damage))
    with pytest.warns(UserWarning, match="the cache cannot be used"):
        assert TextEncoder(Lengths()).transform(["aa"]).tolist() == [[2, 2]]
    VectorCache().clear()
    TextEncoder(encoder := Lengths()).transform(["aa"])
    TextEncoder(encoder).transform(["aa"])
    assert len(encoder.seen) == 1


def test_a_place_that_cannot_be_written_to_costs_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="cache cannot be used"):
        assert TextEncoder(Lengths(), cache=tmp_path / "file" / "x").transform(["a"]).tolist() == [[1, 1]]


def test_a_cache_in_use_is_not_cleared_in_the_middle_of_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    TextEncoder(Lengths()).transform(["aa"])
    monkeypatch.setattr("polyshot.encoders.cache._WAIT", 0.05)
    other = sqlite3.connect(VectorCache().path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DataError, match=r"cannot be cleared .*locked"):
        VectorCache().clear()
    other.execute("ROLLBACK")
    other.close()
    assert VectorCache().usage() == [("lengths", 1, 8)]


def test_an_error_in_the_middle_of_a_write_keeps_none_of_it(tmp_path: Path) -> None:
    with VectorCache(tmp_path) as cache:
        cache.put("model", "title", {b"a": np.zeros(2, np.float32)})
        with sqlite3.connect(cache.path) as connection:
            stop = "WHEN NEW.item = x'63' BEGIN SELECT RAISE(FAIL, 'full'); END"
            connection.execute(f"CREATE TRIGGER stop BEFORE INSERT ON vectors {stop}")
        connection.close()
        with pytest.warns(UserWarning, match="full"):
            cache.put("model", "title", {key: np.zeros(2, np.float32) for key in (b"b", b"c", b"d")})
    with VectorCache(tmp_path) as cache:
        assert list(cache.get("model", [b"a", b"b", b"c", b"d"])) == [b"a"]


def test_a_process_killed_while_it_writes_leaves_whole_batches(tmp_path: Path) -> None:
    written = tmp_path / "written"
    process = Processes.Process(target=write, args=(tmp_path, written, 100_000))
    process.start()
    while not written.exists() or written.stat().st_size < 5:
        assert process.is_alive()
        time.sleep(0.001)
    process.kill()
    process.join()
    last = written.stat().st_size - 1
    with VectorCache(tmp_path) as cache:
        for batch in range(last + 3):
            found = cache.get("model", items_of(batch))
            assert len(found) in ((20,) if batch <= last else (0, 20))
            assert all((vector == batch).all() for vector in found.values())
    connection = sqlite3.connect(cache.path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "other"]
    processes = [Processes.Process(target=write, args=(tmp_path, file, 25)) for file in files]
    for process in processes:
        process.start()
    for process, file in zip(processes, files, strict=True):
        process.join(300)
        assert (process.exitcode, file.stat().st_size) == (0, 25)
    with VectorCache(tmp_path) as cache:
        assert cache.usage() == [("title", 500, 500 * 256)]


def test_the_folder_is_the_users_own() -> None:
    TextEncoder(Lengths()).transform(["a"])
    assert os.stat(VectorCache().path.parent).st_mode & 0o077 == 0
