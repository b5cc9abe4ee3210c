"""Items from folders, images, tables and npz files, and what users are told about wrong ones."""

from pathlib import Path

import numpy as np
import pytest

from polyshot.app import Columns, read_labelled, read_queries, read_table
from polyshot.errors import DataError, InputError

TICKETS = Columns(text="message", label="category", id="id")


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_rows_without_a_label_are_the_queries(tmp_path: Path, delimiter: str) -> None:
    lines = ["\ufeffid,message,category", "7,refund,money", "8,where is it,", "9,log in,login", "10,,  "]
    path = write(tmp_path / "t.csv", *(line.replace(",", delimiter) for line in lines))
    (examples, labels), queries = read_table(path, TICKETS)
    assert (examples.names, examples.contents, labels) == (["7", "9"], ["refund", "log in"], ["money", "login"])
    assert (queries.names, queries.contents) == (["8", "10"], ["where is it", ""])


def test_quoted_cells_may_hold_anything(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "message", '"two\nlines, ""quoted"""', "", "second")
    queries = read_queries(path, Columns(text="message"))
    assert queries.contents == ['two\nlines, "quoted"', "second"]
    assert queries.names == ["row 1", "row 2"]


def test_numbers_are_columns_or_lists(tmp_path: Path) -> None:
    path = write(tmp_path / "n.csv", "a,b,v", '1,2,"[1, 2]"', '3,4.5,"[3, 4.5]"')
    expected = [[1, 2], [3, 4.5]]
    assert read_queries(path, Columns(numbers=("a", "b"))).contents.tolist() == expected
    assert read_queries(path, Columns(numbers=("v",))).contents.tolist() == expected
    bad = write(tmp_path / "bad.csv", "a,b", "1,2", "1,x", ",2")
    with pytest.raises(DataError, match=r"2 rows hold something else than numbers(.|\n)*row 2(.|\n)*row 3"):
        read_queries(bad, Columns(numbers=("a", "b")))
    with pytest.raises(DataError, match="have 1 to 2 numbers"):
        read_queries(write(tmp_path / "v.csv", "v;w", "[1, 2];", "[1];"), Columns(numbers=("v",)))


def test_an_npz_of_embeddings(tmp_path: Path) -> None:
    X = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.savez(tmp_path / "e.npz", X=X, labels=np.array([0, 1, -1, 1, 0]), class_names=np.array(["no", "yes"]))
    (examples, labels), queries = read_table(tmp_path / "e.npz")
    assert labels == ["no", "yes", "yes", "no"]
    assert queries.contents.tolist() == [[4, 5]]
    assert queries.names == ["row 3"]
    assert len(examples) == 4
    assert len(read_queries(tmp_path / "e.npz")) == 5
    np.savez(tmp_path / "none.npz", X=X[:0])
    with pytest.raises(DataError, match="has no rows to classify"):
        read_queries(tmp_path / "none.npz")


def test_images_from_folders_files_and_tables(photos: Path) -> None:
    examples, labels = read_labelled(photos / "examples")
    assert (examples.names[0], labels[0], len(labels)) == ("blue/0.png", "blue", 24)
    assert read_queries(photos / "queries").names[0] == "blue0.png"
    assert read_queries(photos / "queries" / "red1.png").names == ["red1.png"]
    path = write(photos / "t.csv", "file", "queries/red1.png")
    assert read_queries(path, Columns(image="file")).contents == [photos / "queries" / "red1.png"]


def test_parquet_tables(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    import pyarrow

    table = {"message": ["a", "b", "c"], "category": ["x", "y", None], "v": [[1.0, 2], [3.0, 4], [5.0, 6]]}
    pq.write_table(pyarrow.table(table), tmp_path / "t.parquet")
    (examples, labels), queries = read_table(tmp_path / "t.parquet", Columns(text="message", label="category"))
    assert (examples.contents, labels, queries.contents) == (["a", "b"], ["x", "y"], ["c"])
    assert read_queries(tmp_path / "t.parquet", Columns(numbers=("v",))).contents.tolist() == [[1, 2], [3, 4], [5, 6]]
    named = read_queries(tmp_path / "t.parquet", Columns(numbers=("v",), id="message"))  # not in the file's order
    assert (named.names, named.contents.tolist()) == (["a", "b", "c"], [[1, 2], [3, 4], [5, 6]])
    with pytest.raises(DataError, match="has no column nothing; its columns are message, category, v"):
        read_queries(tmp_path / "t.parquet", Columns(text="nothing"))
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_queries(tmp_path / "bad.parquet", Columns(text="message"))


@pytest.mark.parametrize(
    ("lines", "columns", "message"),
    [
        (["id,message", "1,a"], TICKETS, "has no column category; its columns are id, message"),
        (["id,message,category", "1,a,x", "2,b,x", "3,c,"], TICKETS, "holds only one class, 'x'"),
        (["id,message,category", "1,a,"], TICKETS, "holds no labelled example"),
        (["id,message,category", "1,a,x", "2,b,y"], TICKETS, "every row has a label"),
        (["id,message,message,category", "1,a,b,x"], TICKETS, "more than one column message"),
    ],
)
def test_wrong_tables_are_explained(tmp_path: Path, lines: list[str], columns: Columns, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(write(tmp_path / "t.csv", *lines), columns)


def test_wrong_sources_are_explained(tmp_path: Path, photos: Path) -> None:
    path = write(tmp_path / "t.csv", "message,category", "a,x")
    with pytest.raises(InputError, match="which column holds the labels"):
        read_table(path, Columns(text="message"))
    with pytest.raises(InputError, match="which column is to be classified"):
        read_table(path, Columns(label="category"))
    with pytest.raises(DataError, match="has no rows to classify"):
        read_queries(write(tmp_path / "head.csv", "message"), Columns(text="message"))
    with pytest.raises(DataError, match="no such file or folder"):
        read_queries(tmp_path / "nowhere")
    (tmp_path / "latin.csv").write_bytes("message\ncaf\xe9".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8 text"):
        read_queries(tmp_path / "latin.csv", Columns(text="message"))
    (photos / "examples" / "empty").mkdir()
    with pytest.raises(DataError, match="no images in the class folders empty"):
        read_labelled(photos / "examples")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match="has no images to classify"):
        read_queries(tmp_path / "nothing")
    with pytest.raises(DataError, match="a folder; name it with --support"):
        read_table(photos)
