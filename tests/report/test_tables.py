import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from made_results import CHARACTERS, all_protocols, make_result
from polyshot.cli import app
from polyshot.errors import InputError
from polyshot.evaluation.comparison import compare_paired
from polyshot.evaluation.metrics import Interval
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
    value, std = 100 * ours.summary["accuracy"].estimate, 100 * ours.summary["accuracy"].std
    assert f"| OVE PG GP + Cosine (PL) | **{value:.2f} ± {std:.2f}** | 79.07 ± 0.05 |" in text
    assert "| 75.93 ± 0.46 |" in text
    assert "not ours" in text


def test_a_stand_in_has_nothing_beside_it_unless_asked_and_then_the_head_says_that_it_is_another() -> None:
    result = make_result(ways=5, shots=5)
    assert "paper" not in markdown(result)
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
    options = {"kernel": "cosine", "n_chains": 3}
    assert "| OVE PG GP + Cosine (PL), n_chains 3 |" in markdown(of_cub("a", options=options))


def test_the_csv_says_of_every_figure_whose_it_is() -> None:
    rows = lines_of_csv(of_cub("a"), of_cub("a", protocol="corruption", corruption="gaussian_noise"))
    accuracy = [row for row in rows if row["table"] == "accuracy"]
    assert [(row["source"], row["paper_scenario"]) for row in accuracy] == [("ours", ""), ("paper", "cub")]
    assert [row["episodes"] for row in accuracy] == ["20", ""]
    corrupted = {(row["measure"], row["source"]): row["value"] for row in rows if row["table"].startswith("corruption")}
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
    assert [", temperature scaled" in label for label in tables["calibration"].rows] == [False, True, False, True]


def test_each_kernel_has_a_row_with_the_papers_figure() -> None:
    text = markdown(*(of_cub(f"k{i}", options={"kernel": kernel}) for i, kernel in enumerate(("cosine", "rbf"))))
    assert re.search(r"\| OVE PG GP \+ RBF \(PL\) \| .* \| 77\.96 ± 0\.19 \|", text)
    assert re.search(r"\| OVE PG GP \+ Cosine \(PL\) \| .* \| 79\.07 ± 0\.05 \|", text)


def test_different_runs_of_one_method_are_named_and_the_same_twice_is_an_error() -> None:
    text = markdown(make_result("long"), make_result("short", training={"epochs": 3, "seed": 1}))
    assert "| OVE PG GP + Cosine (PL) [short] |" in text
    assert "seeds" not in text
    with pytest.raises(InputError, match=r"two results for OVE PG GP \+ Cosine \(PL\) \[long\] on Omniglot"):
        make_tables([make_result("long"), make_result("long")])


def test_runs_that_differ_only_in_the_seed_are_one_row_with_mean_and_deviation() -> None:
    strengths = {"a": 2.0, "b": 1.0, "c": 0.5}
    runs = [of_cub(run, strength=s, seed=i) for i, (run, s) in enumerate(strengths.items())]
    values = [100 * r.summary["accuracy"].estimate for r in runs]
    briers = [r.summary["brier"].estimate for r in runs]
    text = markdown(*runs)
    mean, std = np.mean(values), np.std(values, ddof=1)
    assert f"| OVE PG GP + Cosine (PL) | **{mean:.2f} ± {std:.2f} (3 seeds)** | 79.07 ± 0.05 |" in text
    assert f" **{np.mean(briers):.3f} ± {np.std(briers, ddof=1):.3f} (3 seeds)** |" in text
    assert "mean ± standard deviation over training seeds" in text
    one_by_one = render(make_tables(runs, by_seed=True), "markdown")
    assert [f"[{run}] |" in one_by_one for run in strengths] == [True] * 3
    assert "seeds" not in one_by_one
    more = markdown(*runs, of_cub("d", training={"epochs": 9, "seed": 0}))
    assert "| OVE PG GP + Cosine (PL) [a, b, c] |" in more
    assert "| OVE PG GP + Cosine (PL) [d] |" in more
    rows = [row for row in lines_of_csv(*runs) if row["table"] == "accuracy"]
    assert [(row["source"], row["seeds"], row["p_value"]) for row in rows] == [("ours", "3", ""), ("paper", "", "")]


def test_the_csv_has_the_paired_difference_from_the_first_row_and_its_p_value() -> None:
    first, second = make_result("a"), make_result("b", method="protonet", strength=0.5)
    rows = [row for row in lines_of_csv(first, second) if row["measure"] == "brier"]
    expected = compare_paired(second.episodes["brier"], first.episodes["brier"], seed=0)
    assert (rows[0]["against"], rows[0]["p_value"]) == ("", "")
    assert rows[1]["against"] == "OVE PG GP + Cosine (PL)"
    assert float(rows[1]["p_value"]) == pytest.approx(expected.p_value, rel=1e-5)
    assert float(rows[1]["difference"]) == pytest.approx(expected.difference.estimate, rel=1e-5)
    assert float(rows[1]["difference_low"]) == pytest.approx(expected.difference.low, rel=1e-5)


def test_only_the_papers_data_are_captioned_as_its_table() -> None:
    assert r"\caption{Accuracy in per cent (the paper's Table 2)." in render(make_tables([of_cub("a")]), "latex")
    own = make_result(scenario="folder:my/photos", ways=5, shots=5)
    assert r"\caption{Accuracy in per cent. " in render(make_tables([own]), "latex")


def test_names_from_data_cannot_break_a_table_or_run_in_a_spreadsheet() -> None:
    bad = [make_result(f"a|b\n\x1b[31m{i}", method="=1+2", training={"epochs": i}) for i in range(2)]
    text = markdown(*bad)
    assert "\x1b" not in text
    assert r"a\|b" in text
    rows = lines_of_csv(*bad)
    assert all(row["row"].startswith("'=1+2") for row in rows)


def test_a_plugins_measure_method_and_scenario_are_shown_under_their_plain_names() -> None:
    result = make_result(method="my-method", scenario="my-scenario")
    result = replace(result, summary=result.summary | {"my_figure": Interval(0.25)})
    text = markdown(result)
    assert "my-scenario 2-way 2-shot my figure |" in text
    assert re.search(r"\| my-method \| .* \| \*\*0\.250\*\* \|", text)


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
    with pytest.raises(InputError, match="no figures for 'glyphs'; choose from cub, mini-imagenet"):
        make_tables([make_result()], "glyphs")
    with pytest.raises(InputError, match="unknown format 'word'; choose from markdown, latex, csv"):
        render(make_tables([make_result()]), "word")


def test_the_command_reads_folders_and_writes_a_file(tmp_path: Path) -> None:
    write_result(tmp_path / "run" / "results" / "accuracy.json", make_result(ways=5, shots=5))
    shown = CliRunner().invoke(app, ["tables", str(tmp_path)])
    assert shown.exit_code == 0
    assert "Omniglot→Chars74K 5-shot" in shown.stdout
    out = tmp_path / "tables" / "t.csv"
    assert CliRunner().invoke(app, ["tables", str(tmp_path), "--format", "csv", "--out", str(out)]).exit_code == 0
    assert CHARACTERS in out.read_text("utf-8")
    for place in ("demo/protonet", "protonet"):  # as after `make demo` and the README's commands
        write_result(tmp_path / place / "results" / "accuracy.json", make_result("protonet", training={"to": place}))
    both = CliRunner().invoke(app, ["tables", str(tmp_path)])
    assert both.exit_code == 0
    assert "[demo/protonet] |" in both.stdout
    wrong = CliRunner().invoke(app, ["tables", str(tmp_path / "nothing")])
    assert wrong.exit_code == 1
    assert "no such file or folder" in wrong.stderr
