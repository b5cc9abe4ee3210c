"""Tables as text: Markdown, LaTeX, and CSV with one line per figure."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from polyshot.errors import InputError
from polyshot.evaluation.comparison import PairedComparison
from polyshot.evaluation.measures import Measure, OutlierMeasure
from polyshot.evaluation.paired_results import compare
from polyshot.evaluation.results import Result
from polyshot.evaluation.typed_json import rounded
from polyshot.report.tables import Cell, Column, Table
from polyshot.system.text import csv_cell, printable

FORMATS = ("markdown", "latex", "csv")


def render(tables: Sequence[Table], form: str) -> str:
    """All tables as one text: markdown, latex or csv."""
    if form not in FORMATS:
        raise InputError(f"unknown format {form!r}; choose from {', '.join(FORMATS)}")
    if form == "csv":
        return _csv(tables)
    one = _markdown if form == "markdown" else _latex
    return "\n".join(one(table) for table in tables)


def _text(cell: Cell | None, measure: Measure) -> str:
    if cell is None:
        return ""
    text = measure.text(cell.value)
    if cell.std is not None and (measure.percent or cell.n_seeds > 1):
        text += f" ± {measure.text(cell.std)}"
    elif isinstance(measure, OutlierMeasure) and cell.low is not None and cell.high is not None:
        text += f" [{measure.text(cell.low)}, {measure.text(cell.high)}]"
    return text + (f" ({cell.n_seeds} seeds)" if cell.n_seeds > 1 else "")


def _rows(table: Table, bold: str, escaped: Callable[[str], str]) -> Iterator[list[str]]:
    """The cells of each row, the best marked."""
    for label, cells in table.rows.items():
        texts = [escaped(_text(cell, c.measure)) for cell, c in zip(cells, table.columns, strict=True)]
        marked = (bold.replace("@", t) if cell and cell.best else t for t, cell in zip(texts, cells, strict=True))
        yield [escaped(label), *marked]


def _markdown(table: Table) -> str:
    head = ["Method", *(f"{c.group} {c.title(table.with_measure)}" for c in table.columns)]
    rule = ["---"] + ["---:"] * len(table.columns)
    rows = [[_md(name) for name in head], rule, *_rows(table, "**@**", _md)]
    return "\n".join([f"**{table.title}**", "", *(f"| {' | '.join(row)} |" for row in rows), "", table.note, ""])


def _md(text: str) -> str:
    return printable(text).replace("|", r"\|").replace("<", "&lt;")


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "→": r"$\rightarrow$", "±": r"$\pm$", "“": "``", "”": "''",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in printable(text))


def _latex(table: Table) -> str:
    groups = Counter(column.group for column in table.columns)  # in order; the columns of a scenario are neighbours
    upper = ["", *(rf"\multicolumn{{{n}}}{{c}}{{{_tex(group)}}}" for group, n in groups.items())]
    lower = ["Method", *(_tex(column.title(table.with_measure)) for column in table.columns)]
    body = [rf"    {' & '.join(row)} \\" for row in _rows(table, r"\textbf{@}", _tex)]
    return "\n".join([
        r"\begin{table}[ht]", r"  \centering", rf"  \caption{{{_tex(f'{table.title}. {table.note}')}}}",
        rf"  \label{{tab:{table.name}}}", rf"  \begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"    \hline", rf"    {' & '.join(upper)} \\", rf"    {' & '.join(lower)} \\", r"    \hline",
        *body, r"    \hline", r"  \end{tabular}", r"\end{table}", "",
    ])  # fmt: skip


def _csv(tables: Sequence[Table]) -> str:
    """One line per figure, with its paired comparison with the first row of the same column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("table", "row", "scenario", "ways", "shots", "measure", "source", "paper_scenario")
    figures = ("value", "std", "low", "high", "episodes", "seeds")
    writer.writerow([*names, *figures, "against", "difference", "difference_low", "difference_high", "p_value"])
    for table in tables:
        first: dict[Column, tuple[str, Result | None]] = {}
        for label, cells in table.rows.items():
            for cell, c in zip(cells, table.columns, strict=True):
                if cell is None:
                    continue
                source = ("paper", c.paper_scenario, *cell[:5], "") if c.paper_scenario else ("ours", "", *cell[:6])
                against, base = first.setdefault(c, (label, cell.result))
                paired = (
                    compare(cell.result, base, c.measure.name) if cell.result and base and label != against else None
                )
                place = (csv_cell(c.task.scenario), c.task.ways, c.task.shots, c.measure.name)
                writer.writerow([table.name, csv_cell(label), *place, *source, *_paired(against, paired)])
    return text.getvalue()


def _paired(against: str, paired: PairedComparison | None) -> list[object]:
    """Row of the comparison, difference, its interval and p-value; empty without per-episode figures to compare."""
    if paired is None:
        return [""] * 5
    d = paired.difference
    bounds = [rounded(x) if d.bounded else "" for x in (d.low, d.high)]
    return [csv_cell(against), rounded(d.estimate), *bounds, rounded(paired.p_value)]
