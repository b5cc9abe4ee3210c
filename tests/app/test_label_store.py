"""The file of labels: nothing is lost, nothing of other data is taken, and undo ends where it should."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_sessions import label, text_session, texts
from scipy.stats import binom

from polyshot.app import Items
from polyshot.app.labelling import store as store_module
from polyshot.app.labelling.decisions import Decisions
from polyshot.app.labelling.enough import Accuracy, Stability, accuracy, verdict
from polyshot.app.labelling.session import item_keys
from polyshot.app.labelling.store import Action, Decision, LabelStore
from polyshot.errors import DataError, InputError
from polyshot.estimator import OneVsEachClassifier

_WRITER = """
import os, sys
from importlib import util
from pathlib import Path
spec = util.spec_from_file_location("store", sys.argv[2])  # alone, which is quicker than the whole package
sys.modules["store"] = store = util.module_from_spec(spec)
spec.loader.exec_module(store)
labels = store.LabelStore(Path(sys.argv[1]), "text", "made-up")
for version in range(1, 10**6):
    labels.add(store.Action(version, (f"item {version}",), store.Decision("class", "a")))
    os.write(1, b"x")
"""


def test_a_kill_loses_no_confirmed_label(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), store_module.__file__], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        confirmed = writer.stdout.read(20)
        os.kill(writer.pid, signal.SIGKILL)
        confirmed += writer.stdout.read()
    store = LabelStore(path, "text", "made-up")
    versions = [action.version for action in store.actions()]
    store.close()
    assert versions == list(range(1, len(versions) + 1))
    assert len(confirmed) <= len(versions) <= len(confirmed) + 1


def test_a_label_is_on_disk_in_full_before_the_call_returns(tmp_path: Path) -> None:
    store = LabelStore(tmp_path / "labels.sqlite", "text", "made-up")
    pragmas = {
        name: store._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    }
    store.close()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2}


def test_one_process_at_a_time_has_the_file(tmp_path: Path) -> None:
    store = LabelStore(tmp_path / "labels.sqlite", "text", "made-up")
    with pytest.raises(DataError, match="another `polyshot label` uses this file"):
        LabelStore(tmp_path / "labels.sqlite", "text", "made-up")
    store.close()


def test_files_that_are_not_ours_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE accounts (name TEXT)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(DataError, match="not a file of `polyshot label`"):
        LabelStore(other, "text", "made-up")
    assert other.read_bytes() == before
    (tmp_path / "noise.sqlite").write_bytes(b"noise" * 1000)
    with pytest.raises(DataError, match="cannot be read or written"):
        LabelStore(tmp_path / "noise.sqlite", "text", "made-up")
    LabelStore(tmp_path / "labels.sqlite", "text", "made-up").close()
    with pytest.raises(DataError, match="holds labels of text, and these are images"):
        LabelStore(tmp_path / "labels.sqlite", "images", "photos")


def test_a_session_goes_on_where_it_was_also_when_items_came_and_went(tmp_path: Path) -> None:
    path, items = tmp_path / "labels.sqlite", texts()
    with text_session(path) as session:
        label(session, 5, "login")
        label(session, [6, 7], "late")
        label(session, 8, "none")
        session.undo(3)
    changed = [items[7], *items[:5], "a new one", items[5], items[20]]
    with text_session(path, changed) as session:
        assert session.decisions.labels == {7: "login", 0: "late"}
        assert session.decisions.version == 4


def test_labels_of_other_data_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    with text_session(path) as session:
        label(session, [1, 2, 3], "login")
    message = "holds labels of other data, made-up: 3 of its 3 labelled items are not in made-up"
    with pytest.raises(DataError, match=message):
        text_session(path, [f"something else {k} money" for k in range(9)])
    text_session(path).close()


def test_equal_texts_are_different_items_and_images_are_known_by_name_and_size(tmp_path: Path) -> None:
    assert len(set(item_keys(Items.of("text", ["same", "same", "other"])))) == 3
    (tmp_path / "a.png").write_bytes(b"12")
    before = item_keys(Items.of("images", [tmp_path / "a.png"], ["a.png"]))
    (tmp_path / "a.png").write_bytes(b"123")
    assert item_keys(Items.of("images", [tmp_path / "a.png"], ["a.png"])) != before


@pytest.mark.parametrize("name", ["", " a", "a\n", "\x1b[31m", "a" * 101, "none of these"])
def test_names_of_classes_that_could_not_be_shown_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        Decision("class", name)


steps = st.lists(
    st.one_of(
        st.tuples(st.lists(st.integers(0, 4), min_size=1, unique=True), st.sampled_from(["a", "b", "none", "skip"])),
        st.just("undo"),
    ),
    max_size=25,
)


@given(steps)
def test_undo_is_as_if_the_step_had_never_been(steps: list) -> None:
    start = ["z", None, None, None, None]
    keys = [f"key {row}" for row in range(5)]
    decisions, kept = Decisions(keys, start), []
    for version, step in enumerate(steps, start=1):
        if step == "undo":
            last = decisions.last
            assert (last is None) == (not kept)
            if last is not None:
                decisions.apply([Action(version, last.items, None, undoes=last.version)])
                kept.pop()
            continue
        rows, word = step
        decision = Decision(word) if word in ("none", "skip") else Decision("class", word)
        decisions.apply([Action(version, tuple(keys[row] for row in rows), decision)])
        kept.append((rows, decision))
    expected = {0: Decision("class", "z")}
    for rows, decision in kept:
        expected |= dict.fromkeys(rows, decision)
    assert decisions.current == expected
    assert set(decisions.classes) == {decision.label for decision in expected.values()} - {None}


def test_spot_checks_follow_corrections_and_undo() -> None:
    decisions = Decisions(["a", "b"], [None, None])
    decisions.apply([Action(1, ("a",), Decision("class", "cat"), spot_check=True)])
    decisions.apply([Action(2, ("b",), Decision("none"), spot_check=True)])
    assert decisions.checks == [0, 1]
    decisions.apply([Action(3, ("b",), Decision("skip"))])
    assert decisions.checks == [0]
    decisions.apply([Action(4, ("a",), None, undoes=1)])
    assert decisions.checks == []


def test_the_accuracy_is_that_of_models_without_the_spot_check_with_clopper_and_pearsons_interval() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    X = np.eye(3)[y] + rng.normal(0, 0.6, (24, 3))
    model, checks = OneVsEachClassifier(log_scale=1.0).fit(X, y), [1, 3, 4, 8, 9, 14, 17, 20, 23]
    right = 0
    for k in checks:
        rest = np.delete(np.arange(24), k)
        right += OneVsEachClassifier(log_scale=1.0).fit(X[rest], y[rest]).predict(X[[k]])[0] == y[k]
    found = accuracy(30, model, checks)
    assert 0 < right < len(checks)
    assert found[:3] == (30, 9, pytest.approx(right / 9))
    assert binom.sf(right - 1, 9, found.low) == pytest.approx(0.05)
    assert binom.cdf(right, 9, found.high) == pytest.approx(0.05)
    assert accuracy(30, model, []) is None


def test_the_verdicts() -> None:
    good, poor = Accuracy(120, 29, 1.0, 0.902, 1.0), Accuracy(8, 2, 0.5, 0.03, 0.97)
    assert verdict(None, None, 9, 0.9) == "start"
    assert verdict(good, None, 9, 0.9) == "reached"
    assert verdict(poor, None, 9, 0.9) == "go on"
    assert verdict(poor, 0.5, 9, 0.9) == "go on"
    assert verdict(poor, 0.001, 9, 0.9) == "stable"
    assert verdict(poor, 0.5, 0, 0.9) == "done"
    stability = Stability()
    stability.add(3, np.array(["a", "a", "b", ""], object))
    assert stability.changed is None
    stability.add(23, np.array(["a", "b", "b", "b"], object))
    assert stability.changed == pytest.approx(1 / 3)
    stability.add(22, np.array(["a", "a", "b", "b"], object))  # one was taken back
    assert stability.changed is None
