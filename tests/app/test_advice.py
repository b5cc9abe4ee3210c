"""Which queries to label next and which labels to check: right rows, in every output."""

import csv
from pathlib import Path

import numpy as np
import pytest

from polyshot.app import ItemClassifier, Items, Levels, classify, items, next_to_label, suspects, write_answers
from polyshot.app.page import make_page

rng = np.random.default_rng(0)
CENTRES = 6 * np.eye(4)
LABELS = np.repeat(["ant", "bee"], 6).tolist()
X = np.repeat(CENTRES[:2], 6, 0) + 0.3 * rng.normal(size=(12, 4))
KNOWN = CENTRES[:2].repeat(5, 0) + 0.3 * rng.normal(size=(10, 4))
NEW = CENTRES[2:].repeat(5, 0) + 0.3 * rng.normal(size=(10, 4))  # two classes that nobody has labelled


def model(labels: list[str] = LABELS) -> ItemClassifier:
    return ItemClassifier.fit(Items.of("vectors", X, [f"example {k}" for k in range(12)]), labels)


def test_one_query_of_each_unlabelled_class_comes_first_and_unusable_ones_never() -> None:
    queries = Items.of("vectors", np.concatenate([KNOWN, NEW, [[np.nan] * 4]]))
    found = next_to_label(model(), queries, 50)
    assert {(row - 10) // 5 for row in found[:2]} == {0, 1}
    assert sorted(found) == list(range(20))
    assert next_to_label(model(), queries, 2) == found[:2]
    assert next_to_label(model(), queries, 0) == ()
    assert next_to_label(model(), queries.take([20]), 3) == ()


def test_of_many_queries_a_sample_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "_SAMPLE", 4)
    queries = Items.of("vectors", np.concatenate([KNOWN, NEW]))
    assert sorted(next_to_label(model(), queries, 10)) == items.sample(queries).tolist()
    assert len(items.sample(queries)) == 4


def test_a_wrong_label_is_found() -> None:
    assert suspects(model()) == ()
    found = model(["bee", *LABELS[1:]])
    (suspect,) = suspects(found)
    assert found.examples.names[suspect.example] == "example 0"
    assert suspect.probability < 0.2


def test_every_output_has_the_advice(tmp_path: Path) -> None:
    queries = Items.of("vectors", np.concatenate([KNOWN, NEW]))
    result = classify(model(["bee", *LABELS[1:]]), queries, Levels(None, None), n_next=3)
    write_answers(result, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        ranks = [row["next_to_label"] for row in csv.DictReader(file)]
    assert [ranks.index(rank) for rank in "123"] == list(result.next_to_label)
    assert ranks.count("") == 17
    page = make_page(result)
    assert [page.count(f"label next: {rank}<") for rank in (1, 2, 3, 4)] == [1, 1, 1, 0]
    assert "Labels to check: 1" in page
    plain = classify(model(), queries, Levels(None, None), n_next=0)
    write_answers(plain, tmp_path / "plain.csv")
    assert "next_to_label" not in (tmp_path / "plain.csv").read_text().splitlines()[0]
    assert "label next:" not in make_page(plain)
    assert "Labels to check" not in make_page(plain)


def test_a_parquet_file_has_whole_numbers(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    result = classify(model(), Items.of("vectors", NEW), Levels(None, None), n_next=2)
    write_answers(result, tmp_path / "a.parquet")
    ranks = pq.read_table(tmp_path / "a.parquet")["next_to_label"].to_pylist()
    assert [ranks.index(rank) for rank in (1, 2)] == list(result.next_to_label)
    assert ranks.count(None) == 8
