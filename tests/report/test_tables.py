import csv
import io
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from made_results import CHARACTERS, all_protocols, make_result
from polyshot.cli import app
from polyshot.errors import InputError
from polyshot.evaluation.results import Result, write_result
from polyshot.report.tables import make_tables
from polyshot.report.tables_text import render


def of_cub(run: str, **changes: Any) -> Result:
    return make_result(run, scenario="cub", ways=5, shots=5, **changes)


def markdown(*results: Result, published_for: str | None = None) -> str:
    return render(make_tables(results, published_for), "markdown")


def lines_of_csv(*results: Result, published_for: str | None = None) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(make_tables(results, published_for), "csv"))))


def test_the_papers_figures_have_a_column_of_their_own_where_the_scenario_is_the_papers() -> None:
    ours = of_cub("a")
    text = markdown(ours, of_cub("b", method="protonet", strength=0.5))
    assert "| Method | CUB 5-shot | CUB 5-shot, paper |" in text
    value, std = (100 * (ours.summary["accuracy"][key] or 0) for key in ("value", "std"))
    assert f"| OVE PG GP + Cosine (PL) | **{value:.2f} ± {std:.2f}** | 79.07 ± 0.05 |" in text
    assert "| 75.93 ± 0.46 |" in text
    assert "not ours" in text


def test_a_stand_in_has_nothing_beside_it_unless_asked_and_then_the_head_says_that_it_is_another() -> None:
    result = make_result(ways=5, shots=5)
    assert "paper" not in markdown(result).replace("the paper's Table 3", "")
    text = markdown(result, published_for="omniglot-to-emnist")
    assert "Omniglot→Chars74K 5-shot, paper on Omniglot→EMNIST (another data set)" in text
    assert "| 87.52 ± 0.19 |" in text


@pytest.mark.parametrize(
    "changes", [{"ways": 2}, {"shots": 3}, {"options": {"kernel": "dkt-cosine"}}, {"temperature": 0.5}]
)
def test_another_task_or_method_than_the_papers_has_nothing_beside_it(changes: dict[str, Any]) -> None:
    result = make_result(**({"scenario": "cub", "ways": 5, "shots": 5} | changes))
    assert "paper" not in markdown(result).replace("the paper's Table 2", "")


def test_an_option_that_is_not_the_default_is_named_in_the_row() -> None:
    assert "| OVE PG GP + Cosine (PL), n_chains 3 |" in markdown(of_cub("a", options={"n_chains": 3}))


def test_the_csv_says_of_every_figure_whose_it_is() -> None:
    rows = lines_of_csv(of_cub("a"), of_cub("a", protocol="corruption", corruption="gaussian_noise"))
    accuracy = [row for row in rows if row["table"] == "accuracy"]
    assert [(row["source"], row["paper_scenario"]) for row in accuracy] == [("ours", ""), ("paper", "cub")]
    assert [row["episodes"] for row in accuracy] == ["20", ""]
    corrupted = {(row["metric"], row["source"]): row["value"] for row in rows if row["table"].startswith("corruption")}
    assert corrupted["accuracy", "paper"] == "0.3301"
    assert corrupted["brier", "paper"] == "0.771"
    assert corrupted.keys() == {(m, s) for m in ("accuracy", "brier") for s in ("ours", "paper")}


def test_every_protocol_has_its_table_and_the_best_is_marked_by_its_direction() -> None:
    results = [*all_protocols("good", strength=3.0), *all_protocols("bad", strength=0.2, method="protonet")]
    tables = {table.name: table for table in make_tables(results)}
    assert list(tables) == [
        "cross-domain", "corruption-defocus_blur-5", "corruption-gaussian_noise-5", "calibration", "out-of-episode"
    ]  # fmt: skip
    for name in ("cross-domain", "corruption-gaussian_noise-5", "out-of-episode"):
        good, bad = tables[name].rows.values()
        assert all(cell and cell.best for cell in good), name
        assert not any(cell and cell.best for cell in bad), name
    assert [", temperature scaled" in label[0] for label in tables["calibration"].rows] == [False, True, False, True]


def test_kernels_have_a_table_when_there_are_several() -> None:
    kernels = [of_cub(f"k{i}", options={"kernel": kernel}) for i, kernel in enumerate(("cosine", "rbf"))]
    text = markdown(*kernels)
    assert "| RBF | PL |" in text
    assert "77.96 ± 0.19 |" in text
    assert "by kernel" not in markdown(kernels[0])


def test_runs_of_one_method_are_told_apart_by_their_names_and_the_same_twice_is_an_error() -> None:
    text = markdown(make_result("seed_1"), make_result("seed_2"))
    assert "| OVE PG GP + Cosine (PL) [seed_2] |" in text
    with pytest.raises(InputError, match=r"two results of one kind for .*seed_1"):
        make_tables([make_result("seed_1"), make_result("seed_1")])


def test_latex_escapes_names_and_has_as_many_cells_in_every_line() -> None:
    text = render(make_tables([of_cub("50%_a&b"), of_cub("c"), make_result("d", scenario="glyphs")]), "latex")
    assert r"[50\%\_a\&b]" in text
    for body in text.split(r"\begin{tabular}{")[1:]:
        columns, rest = body.split("}", 1)
        rows = [line for line in rest.split(r"\end{tabular}")[0].splitlines() if line.endswith(r"\\")]
        cells = [line.replace(r"\&", "").count("&") + 1 for line in rows[1:]]
        assert set(cells) == {len(columns)}
        assert text.count(r"\begin{table}") == text.count(r"\end{table}")


def test_a_scenario_or_form_that_there_is_not_is_an_error() -> None:
    with pytest.raises(InputError, match="no figures for 'glyphs'; it has cub, mini-imagenet"):
        make_tables([make_result()], "glyphs")
    with pytest.raises(InputError, match="markdown, latex, csv"):
        render(make_tables([make_result()]), "word")


def test_the_command_reads_folders_and_writes_a_file(tmp_path: Path) -> None:
    write_result(tmp_path / "run" / "results" / "accuracy.json", make_result(ways=5, shots=5))
    shown = CliRunner().invoke(app, ["tables", str(tmp_path)])
    assert shown.exit_code == 0
    assert "Omniglot→Chars74K 5-shot" in shown.stdout
    out = tmp_path / "tables" / "t.csv"
    assert CliRunner().invoke(app, ["tables", str(tmp_path), "--format", "csv", "--out", str(out)]).exit_code == 0
    assert CHARACTERS in out.read_text("utf-8")
    wrong = CliRunner().invoke(app, ["tables", str(tmp_path / "nothing")])
    assert wrong.exit_code == 1
    assert "there is no such file or folder" in wrong.stderr
