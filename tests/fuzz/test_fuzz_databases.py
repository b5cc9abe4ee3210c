"""Damaged SQLite files. Labels, also forged ones: the person's steps, or an error of ours that names the file.

The cache of vectors: the right vectors or none, and at most a warning.
"""

import contextlib
import shutil
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pytest
from fuzzing import attempt_file, count, fuzz_settings
from hypothesis import given
from hypothesis import strategies as st
from mutations import NUMBERS, TEXTS, damaged_bytes

from polyshot.app.labelling.decisions import Decisions
from polyshot.app.labelling.store import LabelStore
from polyshot.encoders import VectorCache
from tests.golden.make import write_labels

COLUMNS = [
    ("source", "kind"), ("source", "name"), ("items", "version"), ("items", "item"), ("growth", "accuracy"),
    ("growth", "n_decided"), ("growth", "n_checks"),
    *(("actions", name) for name in ("version", "at", "decision", "class", "spot_check", "undoes")),
]  # fmt: skip
VALUES = [*(x for x in NUMBERS if isinstance(x, float) or abs(x) < 2**63), *TEXTS[:4], b"x", None, "none", "class"]
SCHEMA = [
    "DROP TABLE growth", "DROP TABLE items", "DELETE FROM source", "DELETE FROM actions WHERE version = 1",
    "INSERT INTO source VALUES ('text', 'other')", "PRAGMA user_version = 7", "CREATE TABLE more (x)",
    "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items; END",
    "ALTER TABLE items RENAME TO gone; CREATE VIEW items AS WITH RECURSIVE n(version, item) AS "
    "(SELECT 1, 'a' UNION ALL SELECT version, item FROM n) SELECT * FROM n",
]  # fmt: skip


@pytest.fixture(scope="module")
def labels(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("labels") / "labels.sqlite"
    write_labels(path)
    return path


@fuzz_settings(40)
@given(data=st.data())
def test_a_file_of_labels(labels, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "forged.sqlite"
    for old in path.parent.glob("forged.sqlite*"):
        old.unlink()
    shutil.copy(labels, path)
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    else:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        if data.draw(st.integers(0, 3)):
            table, column = data.draw(st.sampled_from(COLUMNS))
            change = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?"
            with contextlib.suppress(sqlite3.IntegrityError):  # not a value of this column
                connection.execute(change, (data.draw(st.sampled_from(VALUES)), data.draw(st.integers(1, 4))))
        else:
            connection.executescript(data.draw(st.sampled_from(SCHEMA)))
        connection.close()
    store = attempt_file(lambda: LabelStore(path, "text", "made-up"), path)
    if store is None:
        return
    try:
        attempt_file(store.growth, path)
        actions = attempt_file(store.actions, path)
        decisions = Decisions(["a", "b", "c"], [None] * 3)
        if actions is not None and attempt_file(lambda: decisions.apply(actions) or decisions) is not None:
            assert set(decisions.current) <= {0, 1, 2}
            assert all(isinstance(name, str) for name in decisions.labels.values())
    finally:
        store.close()


VECTORS = {bytes([k]) * 32: np.full(3, k, np.float32) for k in range(4)}


@pytest.fixture(scope="module")
def cached(tmp_path_factory) -> bytes:
    with VectorCache(tmp_path_factory.mktemp("cache")) as cache:
        cache.put("digest", "a model", VECTORS)
    return cache.path.read_bytes()


@fuzz_settings(8)
@given(data=st.data())
def test_a_damaged_cache(cached, tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "damaged-cache"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cache = VectorCache(folder)
    cache.path.write_bytes(data.draw(damaged_bytes(cached)))
    with cache, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = cache.get("digest", list(VECTORS))
        cache.put("digest", "a model", VECTORS)
        assert all(isinstance(usage.title, str) for usage in cache.usage())
        cache.clear()
        cache.put("digest", "a model", VECTORS)
        assert len(cache.get("digest", list(VECTORS))) == 4
    assert all("the cache cannot be used" in str(warning.message) for warning in told)
    assert set(found) <= set(VECTORS)
    assert all(np.array_equal(vector, VECTORS[item]) for item, vector in found.items())
    count("refusal" if told else "answer")
