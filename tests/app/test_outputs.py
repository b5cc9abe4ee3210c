"""Answers as files: nothing acts on a spreadsheet or a browser, and the originals stay where they are."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyshot.app import Classification, ItemClassifier, Items, Levels, classify, page, sort_into, write_answers
from polyshot.app.outputs import check_free
from polyshot.app.page import make_page
from polyshot.errors import DataError, InputError

EVIL = "<script>alert(1)</script>"


def lengths(texts: list[str]) -> list[list[float]]:
    return [[len(text), text.count("a")] for text in texts]


def tickets(levels: Levels | None = None) -> Classification:
    examples = Items.of("text", [f"{'a' * k}b" for k in range(10)] + ["b" * (20 + k) for k in range(10)])
    model = ItemClassifier.fit(examples, ["=short"] * 10 + [EVIL] * 10, lengths)
    return classify(model, Items.of("text", ["=1+1", f"{EVIL}\n two lines"], ["-1", EVIL]), levels)


def colours(folder: Path, labels: tuple[str, str] = ("red", "blue")) -> Classification:
    """Twelve examples per class; the queries are one red and one blue image of the same file name."""
    images = [Image.new("RGB", (4, 4), (200 + k, 0, 0)) for k in range(12)]
    images += [Image.new("RGB", (4, 4), (0, 0, 200 + k)) for k in range(12)]
    model = ItemClassifier.fit(
        Items.of("images", images),
        [labels[0]] * 12 + [labels[1]] * 12,
        lambda images: [i.getpixel((0, 0)) for i in images],
    )
    files = []
    for name, colour in (("a", (205, 0, 0)), ("b", (0, 0, 205)), ("c", (206, 0, 0))):
        (folder / name).mkdir()
        files.append(folder / name / "x.png")
        Image.new("RGB", (4, 4), colour).save(files[-1])
    return classify(model, Items.of("images", files), Levels(None, None, 2), n_next=1)


def test_a_csv_has_one_safe_row_per_answer(tmp_path: Path) -> None:
    result = tickets()
    write_answers(result, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    classes = [EVIL, "=short"]
    assert list(rows[0]) == [
        *("item", "text", "action", "predicted", "probability", "next_to_label", "prediction_set"),
        *("outlier_p_value", "nearest_examples", *(f"p({name})" for name in classes)),
    ]
    assert [row["item"] for row in rows] == ["'-1", EVIL]
    assert [row["text"] for row in rows] == ["'=1+1", f"{EVIL}\\n two lines"]
    assert rows[0]["predicted"] == "'=short"
    for row, answer in zip(rows, result, strict=True):
        assert [float(row[f"p({name})"]) for name in classes] == list(answer.probabilities)
        assert float(row["outlier_p_value"]) == answer.outlier_p_value


def test_a_parquet_file_keeps_texts_as_they_are(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    result = tickets()
    write_answers(result, tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet").to_pydict()
    assert table["text"] == ["=1+1", f"{EVIL}\n two lines"]
    assert table["probability"] == [answer.probability for answer in result]


def test_fast_answers_have_no_columns_of_sets(tmp_path: Path) -> None:
    write_answers(tickets(Levels(None, None, 0)), tmp_path / "a.csv")
    head = (tmp_path / "a.csv").read_text().splitlines()[0]
    assert head.startswith("item,text,action,predicted,probability,next_to_label,p(")


def test_the_page_escapes_everything_and_loads_nothing() -> None:
    text = make_page(tickets())
    assert EVIL not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 3
    assert text.count("<script>") == 1  # the page's own
    assert "http" not in text
    assert text.count("<article") == 2


def test_the_page_shows_pictures_and_the_least_certain_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = colours(tmp_path)
    text = make_page(result)
    assert text.count('<img alt="" src="data:image/jpeg;base64,') == 3
    used = {k for answer in result for k in answer.nearest}
    # the rule of an example must be stronger than `.reasons i`, whose background it replaces
    assert len(re.findall(r'^\.reasons \.e\d+ \{ background-image: url\("data:image/jpeg;base64,', text, re.M)) == len(
        used
    )
    monkeypatch.setattr(page, "_MOST", 1)
    (chosen,) = (result.queries.names[row] for row in result.next_to_label)
    text = make_page(result)
    others = [answer for answer in result if answer.name != chosen]
    least = min(others, key=lambda answer: answer.probability)
    assert re.findall(r'data-name="([^"]*)"', text) == [
        answer.name for answer in sorted(result, key=lambda a: a.probability) if answer.name in (chosen, least.name)
    ]


@pytest.mark.parametrize("links", [False, True])
def test_images_are_sorted_and_the_originals_stay(tmp_path: Path, links: bool) -> None:
    result = colours(tmp_path, ("../red", "BLUE"))
    before = {file: file.read_bytes() for file in result.queries.contents}
    half = tmp_path / "out" / "BLUE" / ".x.png.killed.part"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"of a killed command")
    assert sort_into(result, tmp_path / "out", links=links) == {"_red": 2, "BLUE": 1}
    assert not half.exists()
    found = {file.relative_to(tmp_path / "out").as_posix(): file for file in (tmp_path / "out").rglob("*.png")}
    assert set(found) == {"_red/x.png", "_red/x-2.png", "BLUE/x.png"}
    assert all(file.is_symlink() == links for file in found.values())
    assert found["BLUE/x.png"].read_bytes() == (tmp_path / "b" / "x.png").read_bytes()
    assert {file: file.read_bytes() for file in before} == before


def test_classes_called_like_an_action_or_each_other_have_their_own_folders(tmp_path: Path) -> None:
    examples = Items.of("vectors", np.arange(6.0)[:, None])
    with pytest.raises(InputError, match="only image files can be sorted"):
        sort_into(classify(ItemClassifier.fit(examples, list("aaabbb")), examples), tmp_path)
    result = colours(tmp_path, ("ask", "ASK"))
    assert sort_into(result, tmp_path / "out") in ({"ask": 2, "ASK 2": 1}, {"ask 2": 2, "ASK": 1})


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    (tmp_path / "empty").mkdir()
    check_free([tmp_path / "new.csv", tmp_path / "empty"])
    with pytest.raises(DataError, match=r"a.csv, .*full: there already; .*--force"):
        check_free([tmp_path / "a.csv", tmp_path / "full", tmp_path / "empty"])
