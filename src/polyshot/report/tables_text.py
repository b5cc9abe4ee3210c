"""Tables as text: Markdown, LaTeX, and CSV with one line a figure."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from polyshot.errors import InputError
from polyshot.report.tables import Cell, Table

FORMATS = ("markdown", "latex", "csv")


def render(tables: Sequence[Table], form: str) -> str:
    """All tables as one text: markdown, latex or csv."""
    if form not in FORMATS:
        raise InputError(f"a table is written as {', '.join(FORMATS)}, not {form!r}")
    if form == "csv":
        return _csv(tables)
    one = _markdown if form == "markdown" else _latex
    return "\n".join(one(table) for table in tables)


def _text(cell: Cell | None, metric: str) -> str:
    if cell is None:
        return ""
    if metric == "accuracy":
        return f"{100 * cell.value:.2f}" + (f" ± {100 * cell.std:.2f}" if cell.std is not None else "")
    interval = f" [{cell.low:.3f}, {cell.high:.3f}]" if metric.startswith("auroc") and cell.low is not None else ""
    return f"{cell.value:.3f}{interval}"


def _rows(table: Table, bold: str, escaped: Callable[[str], str]) -> Iterator[list[str]]:
    """The cells of each row, the best marked."""
    for label, cells in table.rows.items():
        texts = [escaped(_text(cell, c.metric)) for cell, c in zip(cells, table.columns, strict=True)]
        yield [
            *map(escaped, label),
            *(bold.replace("@", t) if cell and cell.best else t for t, cell in zip(texts, cells, strict=True)),
        ]


def _markdown(table: Table) -> str:
    head = [*table.head, *(f"{c.group} {c.title(table.with_metric)}" for c in table.columns)]
    rule = ["---"] * len(table.head) + ["---:"] * len(table.columns)
    rows = [[_md(name) for name in head], rule, *_rows(table, "**@**", _md)]
    return "\n".join([f"**{table.title}**", "", *(f"| {' | '.join(row)} |" for row in rows), "", table.note, ""])


def _md(text: str) -> str:
    return text.replace("|", r"\|")


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "→": r"$\rightarrow$", "±": r"$\pm$", "“": "``", "”": "''",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex(table: Table) -> str:
    groups = Counter(column.group for column in table.columns)  # in order; the columns of a scenario are neighbours
    upper = [*[""] * len(table.head), *(rf"\multicolumn{{{n}}}{{c}}{{{_tex(group)}}}" for group, n in groups.items())]
    lower = [*map(_tex, table.head), *(_tex(column.title(table.with_metric)) for column in table.columns)]
    rows = _rows(table, r"\textbf{@}", _tex)
    body = [rf"    {' & '.join(row)} \\" for row in rows]
    return "\n".join([
        r"\begin{table}[ht]", r"  \centering", rf"  \caption{{{_tex(f'{table.title}. {table.note}')}}}",
        rf"  \label{{tab:{table.name}}}", rf"  \begin{{tabular}}{{{'l' * len(table.head)}{'c' * len(table.columns)}}}",
        r"    \hline", rf"    {' & '.join(upper)} \\", rf"    {' & '.join(lower)} \\", r"    \hline",
        *body, r"    \hline", r"  \end{tabular}", r"\end{table}", "",
    ])  # fmt: skip


def _csv(tables: Sequence[Table]) -> str:
    """One line a figure; `source` is ours or the paper's, `paper_scenario` what the latter is of."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("table", "row", "scenario", "ways", "shots", "metric", "source", "paper_scenario")
    writer.writerow([*names, "value", "std", "low", "high", "episodes"])
    for table in tables:
        for label, cells in table.rows.items():
            for cell, c in zip(cells, table.columns, strict=True):
                if cell is not None:
                    source = ("paper", c.paper_scenario) if c.paper_scenario else ("ours", "")
                    writer.writerow([table.name, ", ".join(label), *c.task, c.metric, *source, *cell[:5]])
    return text.getvalue()
