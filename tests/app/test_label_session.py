"""What a session learns, what it shows next, and what it leaves behind."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from label_sessions import count_words, label, text_session, texts, topic

from polyshot.app import Columns, ItemClassifier, Items
from polyshot.app.labelling import Decision, Exports, Session, learning, open_session, views
from polyshot.app.labelling.ranking import choose_quickly, first_to_label
from polyshot.app.labelling.session import Stale
from polyshot.errors import DataError, InputError
from polyshot.estimator import OneVsEachClassifier


def answer(session: Session, n: int) -> list[int]:
    """Answer the next n items as their topic says; items on a thesis are none of these."""
    shown = []
    for _ in range(n):
        row = session.queue()[0]
        name = topic(session.items.contents[row])
        label(session, row, "none" if name == "thesis" else name)
        session.wait()
        shown.append(row)
    return shown


def test_the_page_learns_all_topics_and_says_so(tmp_path: Path) -> None:
    with text_session(tmp_path / "labels.sqlite") as session:
        shown = answer(session, 24)
        assert len(set(shown)) == 24
        learned = session.learned
        predicted = [learned.classes[k] for k in learned.probabilities.argmax(1)]
        truth = [topic(session.items.contents[row]).replace("thesis", "none of these") for row in learned.rows]
        assert np.mean(np.array(predicted) == truth) > 0.9
        overview = views.overview(session, target=0.5)
        assert overview["verdict"] == "reached"
        assert overview["n"] == {
            "all": 60,
            "open": 36,
            "class": 24 - overview["n"]["none"],
            "none": overview["n"]["none"],
            "skip": 0,
        }
        assert sum(overview["confidence"]) == 36
        assert overview["complete"]


def test_every_fourth_item_is_a_spot_check_whose_guess_is_hidden(tmp_path: Path) -> None:
    with text_session(tmp_path / "labels.sqlite") as session:
        label(session, [row for row in range(60) if row % 4 == 1][:3], "login")
        label(session, [row for row in range(60) if row % 4 == 2][:3], "delivery")
        session.wait()
        queue = views.overview(session, 0.9)["queue"]
        assert [bool(item.get("check")) for item in queue][:4] == [False, True, False, False]
        check = queue[1]
        assert check["guess"] == []
        assert queue[0]["guess"]
        label(session, queue[0]["row"], "login")
        label(session, check["row"], "something else")
        session.wait()
        point = views.overview(session, 0.9)["accuracy"][-1]
        assert (point["n_decided"], point["n_checks"], point["accuracy"]) == (8, 1, 0.0)
    with text_session(tmp_path / "labels.sqlite") as session:
        assert views.overview(session, 0.9)["accuracy"][-1] == point


def test_the_model_grows_by_new_labels_and_is_fitted_again_after_a_correction() -> None:
    X = count_words(texts()).astype(np.float32)
    labels = {row: topic(texts()[row]) for row in range(12)}
    first = learning.answer_open(X, 1, labels, set(labels), list(range(60)), None)
    more = {**labels, 12: "refund"}
    grown = learning.answer_open(X, 2, more, set(more), list(range(60)), first)
    expected = OneVsEachClassifier().fit(X[:12], list(labels.values())).add(X[12:13], ["refund"])
    np.testing.assert_allclose(grown.probabilities, expected.predict_proba(X[13:]))
    corrected = {**more, 0: "login"}
    again = learning.answer_open(X, 3, corrected, set(corrected), list(range(60)), grown)
    expected = OneVsEachClassifier().fit(X[:13], list(corrected.values()))
    np.testing.assert_allclose(again.probabilities, expected.predict_proba(X[13:]))


def test_the_first_items_are_of_all_topics_and_the_next_ones_uncertain_and_different() -> None:
    X = count_words(texts()).astype(np.float32)
    order = first_to_label(X)
    assert sorted(order) == list(range(60))
    assert len({topic(texts()[row]) for row in order[:8]}) == 4
    labels = [topic(text) for text in texts()[:8]]
    model = OneVsEachClassifier().fit(X[:8], labels)
    pool = np.concatenate([X[8:], X[8:9], X[8:9]])  # copies of one row
    probabilities = model.predict_proba(pool)
    chosen = choose_quickly(model, pool, probabilities, 5)
    assert len(set(chosen)) == 5
    assert len({0, 52, 53} & set(chosen)) <= 1
    assert probabilities.max(1)[chosen].mean() < probabilities.max(1).mean()


def test_a_wrong_label_is_a_suspect_until_it_is_confirmed(tmp_path: Path) -> None:
    with text_session(tmp_path / "labels.sqlite") as session:
        for k, name in enumerate(["refund", "login", "delivery"]):
            label(session, [row for row in range(4, 40) if row % 4 == k], name)
        label(session, 40, "delivery")
        session.wait()
        assert views.overview(session, 0.9)["suspects"][0]["row"] == 40
        label(session, 40, "delivery")
        session.wait()
        assert 40 not in [item["row"] for item in views.overview(session, 0.9)["suspects"]]


def test_strangers_are_what_is_unlike_all_labels(tmp_path: Path) -> None:
    with text_session(tmp_path / "labels.sqlite") as session:
        for k, name in enumerate(["refund", "login", "delivery"]):
            label(session, [row for row in range(4, 52) if row % 4 == k], name)
        session.wait()
        strangers = Counter(topic(session.items.contents[row]) for group in session.learned.strangers for row in group)
    assert strangers["thesis"] >= 10
    assert strangers.total() - strangers["thesis"] <= 2


def test_what_changed_in_another_tab_is_not_overwritten(tmp_path: Path) -> None:
    with text_session(tmp_path / "labels.sqlite") as session:
        label(session, 3, "thesis")
        seen = session.decisions.version
        label(session, 3, "login")
        for change in (
            lambda: session.decide([3], Decision("none"), seen),
            lambda: session.undo(seen),
            lambda: session.rename("login", "log-in", seen),
        ):
            with pytest.raises(Stale):
                change()
        session.decide([4], Decision("none"), seen)  # another item is no conflict
        assert session.decisions.labels == {3: "login"}


def test_renaming_merges_and_can_be_undone(tmp_path: Path) -> None:
    with text_session(tmp_path / "labels.sqlite", start=["a", "b", *[None] * 58]) as session:
        label(session, 2, "b")
        session.rename("b", "a", session.decisions.version)
        assert session.decisions.classes == {"a": 3}
        session.undo(session.decisions.version)
        assert session.decisions.classes == {"a": 1, "b": 2}
        with pytest.raises(InputError, match="there is no class 'c'"):
            session.rename("c", "a", session.decisions.version)


def test_skipped_items_come_back_at_the_end_the_first_one_first(tmp_path: Path) -> None:
    with text_session(tmp_path / "labels.sqlite", texts(3)) as session:
        for _ in range(3):
            label(session, session.queue()[0], None)
        first, second, third = session.queue()
        label(session, first, None)
        assert session.queue() == [second, third, first]


def test_a_failure_to_learn_is_shown_and_loses_no_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with text_session(tmp_path / "labels.sqlite") as session:
        session.wait()
        monkeypatch.setattr("polyshot.app.labelling.session.answer_open", lambda *_: 1 / 0)
        label(session, 1, "login")
        with pytest.raises(DataError, match="the answers could not be updated"):
            session.wait()
        monkeypatch.undo()
        label(session, 2, "delivery")
        session.wait()
        assert session.problem is None
        assert session.decisions.labels == {1: "login", 2: "delivery"}


def test_exports_of_images(photos: Path, tmp_path: Path) -> None:
    def colours(images: list) -> np.ndarray:
        return np.array([np.asarray(image).mean((0, 1)) for image in images])

    session, failures = open_session(photos, tmp_path / "l.sqlite", encoder=colours)
    with session:
        assert failures == {}
        rows = {name: row for row, name in enumerate(session.items.names)}
        for name in ("blue", "green", "red"):
            label(session, [rows[f"examples/{name}/{k}.png"] for k in range(8)], "none" if name == "blue" else name)
        exports = Exports(session, tmp_path / "out", sure=0.5)
        result = exports.write("folders")
        sorted_files = {
            str(file.relative_to(tmp_path / "out" / "sorted")) for file in (tmp_path / "out" / "sorted").rglob("*.png")
        }
        assert {"red/red0.png", "green/green1.png", "none of these/blue0.png", "red/7.png"} <= sorted_files
        assert len(sorted_files) == 30
        assert result["summary"] == "30 images in folders of their class, 0 to check"
        assert exports.write("folders")["path"].endswith("sorted-2")
        table = Path(exports.write("table")["path"])
        with pytest.raises(InputError, match="a function is not kept in a file"):
            exports.write("model")
        with pytest.raises(InputError, match="unknown export 'all'"):
            exports.write("all")
    assert len(list(photos.rglob("queries/*.png"))) == 6
    content = {row["item"]: row for row in csv.DictReader(table.read_text("utf-8").splitlines())}
    assert content["examples/red/0.png"]["label"] == "red"
    assert (content["examples/blue/0.png"]["label"], content["examples/blue/0.png"]["decision"]) == (
        "",
        "none of these",
    )
    assert (content["queries/green0.png"]["predicted"], content["queries/green0.png"]["label"]) == ("green", "")
    assert Path(content["queries/green0.png"]["image"]).is_file()


def test_the_exported_model_is_one_that_classify_loads(tmp_path: Path) -> None:
    table = tmp_path / "tickets.csv"
    messages = ["my money is not back", "I want a refund", "refund me", "password lost", "cannot log in", "login fails"]
    table.write_text(
        "\n".join(["message,topic", *[f"{m},{'refund' if k < 2 else ''}" for k, m in enumerate(messages)]])
    )
    session, _ = open_session(table, tmp_path / "l.sqlite", Columns(text="message", label="topic"))
    with session:
        assert session.decisions.labels == {0: "refund", 1: "refund"}
        exports = Exports(session, tmp_path / "out")
        with pytest.raises(InputError, match="a model needs items of two classes"):
            exports.write("model")
        label(session, [3, 4], "login")
        path = exports.write("model")["path"]
        table = Path(exports.write("table")["path"])
    answers, _ = ItemClassifier.load(path).answer(Items.of("text", ["the login page", "give me my money"]))
    assert [found.predicted for found in answers] == ["login", "refund"]
    again, _ = open_session(table, tmp_path / "again.sqlite", Columns(text="text", label="label"))
    with again:
        assert again.decisions.labels == {0: "refund", 1: "refund", 3: "login", 4: "login"}


def test_sub_folders_are_labels_if_wished_and_what_cannot_be_shown_is_refused(photos: Path, tmp_path: Path) -> None:
    def blank(images: list) -> np.ndarray:
        return np.ones((len(images), 2))

    (photos / "examples" / "broken.png").write_bytes(b"no image")
    session, failures = open_session(photos / "examples", tmp_path / "l.sqlite", folders=True, encoder=blank)
    with session:
        assert session.decisions.classes == {"blue": 8, "green": 8, "red": 8}
    assert list(failures) == ["broken.png"]
    np.savez(tmp_path / "x.npz", X=np.ones((3, 2)))
    with pytest.raises(InputError, match="vectors cannot be looked at"):
        open_session(tmp_path / "x.npz", tmp_path / "x.sqlite")
    (tmp_path / "t.csv").write_text("message\na\nb\n")
    with pytest.raises(InputError, match="not a folder"):
        open_session(tmp_path / "t.csv", tmp_path / "x.sqlite", Columns(text="message"), folders=True, encoder=blank)
    with pytest.raises(InputError, match="not a table, so it has no column of labels"):
        open_session(photos, tmp_path / "x.sqlite", Columns(label="message"), encoder=blank)


def test_suspects_and_strangers_give_way_to_a_newer_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    labels = {row: "ab"[row % 2] for row in range(30)}
    learned = learning.answer_open(X, 30, labels, set(labels), list(range(60)), None)
    asked: list[int] = []
    p_value = OneVsEachClassifier.outlier_p_value

    def counted(self: OneVsEachClassifier, rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return p_value(self, rows)

    monkeypatch.setattr(OneVsEachClassifier, "outlier_p_value", counted)
    assert learning.look_closer(X, learned, set(), [], lambda: len(asked) == 2) is None
    assert len(asked) == 2
    whole = learning.look_closer(X, learned, set(), [], lambda: False)
    assert whole is not None
    assert whole.complete
    assert sum(asked[2:]) == 30
