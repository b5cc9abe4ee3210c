import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyshot.system.text import csv_cell, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("naïve Čapek 漢字 أحمد", "naïve Čapek 漢字 أحمد"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\u202eb\u200fc\u2066", "a\\u202eb\\u200fc\\u2066"),
        ("caf\udce9", "caf\\udce9"),
        ("two\nlines\ttab\rback", "two\\nlines\\ttab\\rback"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d🔬", "👩\u200d🔬"),
    ],
)
def test_what_acts_on_a_terminal_is_spelled_out(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_lines_of_a_message_may_be_kept() -> None:
    assert printable("one\ntwo\x1b", keep="\n") == "one\ntwo\\x1b"


@given(st.text(st.characters()))
def test_any_text_can_be_encoded_and_stays_on_one_line(text: str) -> None:
    shown = printable(text)
    shown.encode("utf-8")
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown


@given(st.text(st.characters(), min_size=1))
def test_a_cell_is_no_formula_and_one_row(text: str) -> None:
    cell = csv_cell(text)
    assert cell[0] not in "=+-@\t\r"
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerow([cell, "next"])
    assert len(table.getvalue().splitlines()) == 1
    assert next(csv.reader(io.StringIO(table.getvalue()))) == [cell, "next"]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_formulas_are_quoted(text: str) -> None:
    assert csv_cell(text) == f"'{printable(text)}"
