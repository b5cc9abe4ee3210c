"""From items to answers: the same as the estimator says, in any chunks, resumed, and kept in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyshot.app import Answer, ItemClassifier, Items, Levels, classification, classify, read_labelled, read_queries
from polyshot.encoders import ENCODERS, Encoder
from polyshot.errors import DataError, InputError
from polyshot.system.sealed import read_sealed, write_sealed

rng = np.random.default_rng(0)
CENTRES = rng.normal(size=(3, 6))
LABELS = np.repeat(["ant", "bee", "cow"], 10).tolist()
X = (np.repeat(CENTRES, 10, 0) + 0.2 * rng.normal(size=(30, 6))).astype(np.float32)
QUERIES = np.concatenate([CENTRES + 0.1, [[30.0, -30, 30, -30, 30, -30]]]).astype(np.float32)


def model() -> ItemClassifier:
    return ItemClassifier.fit(Items.of("vectors", X, [f"{label}{k}" for k, label in enumerate(LABELS)]), LABELS)


class MeanColour(Encoder):
    kind = "images"
    title, licence, citation, digest = "mean colour", "none", "nobody", "mean-colour"
    dimension = 3

    def prepare(self, image: Any) -> np.ndarray:
        return np.asarray(image, np.float32).mean((0, 1))

    def encode(self, items: Sequence[Any]) -> np.ndarray:
        return np.stack(items)


def test_the_answers_are_those_of_the_estimator() -> None:
    found = model()
    answers = list(classify(found, Items.of("vectors", QUERIES), Levels(0.9, 0.05)))
    np.testing.assert_allclose([a.probabilities for a in answers], found.model.predict_proba(QUERIES))
    sets = found.model.predict_set(QUERIES, 0.9)
    assert [a.prediction_set for a in answers] == [tuple(np.array(found.classes)[row]) for row in sets]
    np.testing.assert_allclose([a.outlier_p_value for a in answers], found.model.outlier_p_value(QUERIES))
    assert [a.predicted for a in answers[:3]] == ["ant", "bee", "cow"]
    assert [a.action for a in answers] == ["accept", "accept", "accept", "none of these"]
    assert answers[0].probability == max(answers[0].probabilities)


def test_the_nearest_examples_are_the_nearest_and_have_their_own_labels() -> None:
    found = model()
    (answer,) = found.answer(Items.of("vectors", X[13:14]), Levels(None, None, 4))[0]
    distances = np.square(X - X[13]).sum(1)
    names = [f"{label}{k}" for k, label in enumerate(LABELS)]
    assert [found.examples.names[k] for k in answer.nearest] == [names[k] for k in distances.argsort()[:4]]
    assert all(found.examples.names[k].startswith(found.labels[k]) for k in range(30))


def test_fast_levels_leave_out_sets_and_outliers() -> None:
    (answer,) = model().answer(Items.of("vectors", QUERIES[3:]), Levels(None, None, 0))[0]
    assert (answer.prediction_set, answer.outlier_p_value, answer.nearest, answer.action) == (None, None, (), "accept")


def test_too_few_examples_for_a_level_are_noted() -> None:
    assert Levels(0.9, 0.05).notes(30) == []
    sets, outliers = Levels(0.9, 0.05).notes(8)
    assert "they need 9 labelled examples, and there are 8" in sets
    assert "it needs 20 labelled examples, and there are 8" in outliers
    for n, excluded in ((8, False), (9, True)):  # the note states what the estimator does
        x = np.concatenate([np.zeros(n // 2), np.ones(n - n // 2)])[:, None] + 0.01 * np.arange(n)[:, None]
        fitted = ItemClassifier.fit(Items.of("vectors", x), [f"c{int(v > 0.5)}" for v in x[:, 0]]).model
        assert bool((~fitted.predict_set([[0.02]], 0.9)).any()) == excluded
    with pytest.raises(InputError, match="confidence must lie between 0 and 1"):
        Levels(1.0)


def test_chunks_do_not_change_the_answers_and_an_interrupted_call_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = Items.of("vectors", np.repeat(QUERIES, 3, 0))
    whole = list(classify(model(), queries))
    monkeypatch.setattr(classification, "CHUNK", 5)
    calls: list[int] = []
    answer = ItemClassifier.answer

    def interrupted(self: ItemClassifier, chunk: Items, levels: Levels) -> Any:
        calls.append(len(chunk))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answer(self, chunk, levels)

    monkeypatch.setattr(ItemClassifier, "answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        classify(model(), queries, parts=tmp_path / "parts")
    resumed = classify(model(), queries, parts=tmp_path / "parts")
    assert calls == [5, 5, 5, 2]  # the first chunk is not answered again
    np.testing.assert_allclose([a.probabilities for a in resumed], [a.probabilities for a in whole])
    assert [(a.name, a.action, a.nearest) for a in resumed] == [(a.name, a.action, a.nearest) for a in whole]
    classify(model(), queries, Levels(0.8), parts=tmp_path / "parts")  # another question starts from scratch
    assert calls == [5, 5, 5, 2, 5, 5, 2]
    resumed.forget_parts()
    assert not (tmp_path / "parts").exists()


def test_unusable_items_are_named_all_at_once_or_left_out(photos: Path) -> None:
    for name in ("bad1.png", "bad2.png"):
        (photos / "queries" / name).write_bytes(b"no image")
    examples, labels = read_labelled(photos / "examples")
    found = ItemClassifier.fit(examples, labels, MeanColour())
    queries = read_queries(photos / "queries")
    with pytest.raises(DataError, match=r"2 of 8 queries cannot be used(.|\n)*bad1.png(.|\n)*bad2.png"):
        classify(found, queries)
    result = classify(found, queries, skip_unreadable=True)
    assert {queries.names[row] for row in result.failures} == {"bad1.png", "bad2.png"}
    assert [(queries.names[row], a.name, a.predicted) for row, a in result.by_row()] == [
        (f"{c}{k}.png", f"{c}{k}.png", c) for c in ("blue", "green", "red") for k in (0, 1)
    ]
    (photos / "examples" / "red" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"1 of 24 labelled examples cannot be used(.|\n)*red/0.png"):
        ItemClassifier.fit(examples, labels, MeanColour())
    assert len(ItemClassifier.fit(examples, labels, MeanColour(), skip_unreadable=True).examples) == 23
    with pytest.raises(DataError, match="none of the queries can be used"):
        classify(found, Items.of("images", [photos / "queries" / "bad1.png"]), skip_unreadable=True)


@pytest.mark.parametrize("bad", [1e9, 1e20, 1e39, np.nan])
def test_vectors_that_no_kernel_can_use_are_named_or_left_out(bad: float) -> None:
    rows = np.concatenate([QUERIES[:3], [np.full(6, bad)], QUERIES[3:]])
    queries = Items.of("vectors", rows)
    examples = Items.of("vectors", X)
    for pool in (None, queries):
        found = ItemClassifier.fit(examples, LABELS, pool=pool)
        with pytest.raises(DataError, match=r"1 of 5 queries cannot be used(.|\n)*row 4: (holds|a row of X lies)"):
            classify(found, queries)
        result = classify(found, queries, skip_unreadable=True)
        assert set(result.failures) == {3}
        assert [a.name for a in result] == ["row 1", "row 2", "row 3", "row 5"]
        assert 3 not in result.next_to_label
        others = ItemClassifier.fit(examples, LABELS, pool=pool and queries.take([0, 1, 2, 4]))
        expected, _ = others.answer(queries.take([0, 1, 2, 4]))
        np.testing.assert_allclose([a.probabilities for a in result], [a.probabilities for a in expected])
    more = Items.of("vectors", np.concatenate([X, rows[3:4]]))
    with pytest.raises(DataError, match=r"1 of 31 labelled examples cannot be used(.|\n)*row 31: (holds|lies so far)"):
        ItemClassifier.fit(more, [*LABELS, "ant"])
    assert len(ItemClassifier.fit(more, [*LABELS, "ant"], skip_unreadable=True).examples) == 30


def test_empty_texts_are_reported() -> None:
    texts = Items.of("text", ["a", "aa", "bbbbbbb", " "])
    with pytest.raises(DataError, match=r"1 of 4 labelled examples cannot be used(.|\n)*row 4: empty text"):
        ItemClassifier.fit(texts, ["x", "x", "y", "y"], lambda texts: [[len(t), t.count("a")] for t in texts])
    with pytest.raises(DataError, match="no usable example is left of the classes z"):
        ItemClassifier.fit(texts, ["x", "x", "y", "z"], lambda t: [[len(s), 1] for s in t], skip_unreadable=True)


def test_a_saved_model_answers_as_before(tmp_path: Path, photos: Path) -> None:
    ENCODERS.register("mean-colour", MeanColour)
    try:
        examples, labels = read_labelled(photos / "examples")
        found = ItemClassifier.fit(examples, labels, "mean-colour")
        found.save(tmp_path / "m.polyshot")
        loaded = ItemClassifier.load(tmp_path / "m.polyshot")
        queries = read_queries(photos / "queries")
        before, after = (m.answer(queries)[0] for m in (found, loaded))
        assert [(a.name, a.predicted, a.nearest) for a in before] == [(a.name, a.predicted, a.nearest) for a in after]
        assert list(loaded.examples.names) == list(found.examples.names)
        assert loaded.labels == found.labels
        ENCODERS["mean-colour"].digest = "other weights"
        with pytest.raises(DataError, match="other weights than when the model was made"):
            ItemClassifier.load(tmp_path / "m.polyshot")
    finally:
        MeanColour.digest = "mean-colour"
        ENCODERS.unregister("mean-colour")


def test_models_that_cannot_be_loaded_say_why(tmp_path: Path) -> None:
    path = tmp_path / "m.polyshot"
    with pytest.raises(DataError, match="no such model"):
        ItemClassifier.load(path)
    model().save(path)
    record = tmp_path / "m.polyshot.json"
    write_sealed(record, read_sealed(record)[0] | {"model": "0"})
    with pytest.raises(DataError, match="does not belong to"):
        ItemClassifier.load(path)
    record.write_text("[]")
    with pytest.raises(DataError, match="not a JSON object"):
        ItemClassifier.load(path)
    record.unlink()
    with pytest.raises(DataError, match="it belongs beside the model file"):
        ItemClassifier.load(path)
    with pytest.raises(InputError, match="only a model whose encoder has a name"):
        ItemClassifier.fit(Items.of("text", ["a", "bb"]), ["x", "y"], lambda t: [[len(s)] for s in t]).save(path)


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(InputError, match="the model classifies vectors, and the queries are text"):
        model().answer(Items.of("text", ["a"]))
    with pytest.raises(InputError, match="vectors need no encoder"):
        ItemClassifier.fit(Items.of("vectors", X), LABELS, "wordllama")
    with pytest.raises(InputError, match="30 examples and 29 labels"):
        ItemClassifier.fit(Items.of("vectors", X), LABELS[1:])


def test_an_answer_survives_json() -> None:
    answer = Answer("a", "x", 0.5, "ask", ("x", "y"), 0.25, (3, 1), (0.5, 0.5))
    as_json = {k: list(v) if isinstance(v, tuple) else v for k, v in answer.as_dict().items()}
    assert Answer.from_dict(as_json) == answer


def test_unlabelled_items_help_and_those_that_cannot_be_used_are_left_out() -> None:
    """Five tasks of three clusters with one example each; the queries show where the clusters are."""
    draw = np.random.default_rng(0)
    log_loss = {"alone": 0.0, "pool": 0.0}
    for _ in range(5):
        centres, truth = 1.5 * draw.normal(size=(3, 8)), np.repeat([0, 1, 2], 20)
        queries = Items.of("vectors", centres[truth] + draw.normal(size=(60, 8)))
        examples = Items.of("vectors", centres + draw.normal(size=(3, 8)))
        for name, pool in (("alone", None), ("pool", queries)):
            answers, _ = ItemClassifier.fit(examples, list("abc"), pool=pool).answer(queries, Levels(None, None))
            log_loss[name] -= np.mean([np.log(a.probabilities[c]) for a, c in zip(answers, truth, strict=True)]) / 5
    assert log_loss["pool"] < 0.9 * log_loss["alone"]
    torn = Items.of("vectors", np.r_[queries.contents, [[np.nan] * 8]])
    again, _ = ItemClassifier.fit(examples, list("abc"), pool=torn).answer(queries, Levels(None, None))
    assert [answer.probabilities for answer in again] == [answer.probabilities for answer in answers]
