"""One self-contained HTML page about some results: the findings, the figures behind them, and how they were made.

    write_report(find_results([Path("runs")]), Path("report.html"))

The page needs no network and no JavaScript, and is well-formed XML.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from importlib.resources import files
from pathlib import Path
from string import Template

from polyshot.errors import InputError
from polyshot.evaluation.measures import Measure
from polyshot.evaluation.results import Result
from polyshot.report import figures
from polyshot.report.episodes import draw_episodes, draw_samples, load_images
from polyshot.report.findings import findings
from polyshot.report.groups import Group, Page
from polyshot.report.markup import escape, note
from polyshot.report.summary import SummaryCell, SummaryTable, summary_tables
from polyshot.report.titles import method_label
from polyshot.system.files import write_atomically

_SECTIONS = {
    "calibration": "Can its confidence be trusted?",
    "abstention": "Does it know when it is unsure?",
    "out-of-episode": "Does it detect unknown classes?",
    "corruption": "Does it cope with corrupted images?",
}
_PROTOCOLS = {"calibration": "accuracy", "abstention": "accuracy"}  # others have their own


def write_report(results: Sequence[Result], out: Path, root: Path | None = None) -> Path:
    """Write the page and return its path.

    Parameters
    ----------
    results : sequence of Result
        The first run is compared with the others.
    out : Path
        The HTML file.
    root : Path, optional
        Data folder, for the pictures of episodes.
    """
    write_atomically(out, make_report(results, root).encode())
    return out


def make_report(results: Sequence[Result], root: Path | None = None) -> str:
    """The page as a string."""
    if not results:
        raise InputError("a report needs at least one result; `polyshot evaluate RUN` writes RUN/results")
    page = Page(results)
    title = f"Few-shot results: {', '.join(dict.fromkeys(task.title for task in page.tasks))}"
    body = "\n".join([_head(page, title), *_sections(page, root), _episodes(page, root), _configuration(page)])
    template = files("polyshot.report").joinpath("template.html").read_text("utf-8")
    return Template(template).substitute(title=escape(title), body=body)


def _head(page: Page, title: str) -> str:
    runs = [r for r in {r.label: r for r in page.results}.values() if r.temperature is None]
    who = "; ".join(f"{r.label} is {method_label(r)}{_trained(r)}" for r in runs)
    tables = summary_tables(page.results)
    shown = {m.name: m for table in tables for m in table.measures}.values()
    meanings = "".join(f"<dt>{escape(m.title)}</dt><dd>{escape(m.meaning)}</dd>" for m in shown)
    return (
        f'<h1>{escape(title)}</h1><p class="lead">{escape(who)}. Made by polyshot on {date.today():%d %B %Y}.</p>'
        f'{"".join(_headline(page, table) for table in tables)}<dl class="meanings">{meanings}</dl>'
        '<p class="note">★ best of the column; ☆ not significantly different from it on the same episodes (sign-flip '
        "test, p above 0.05). Below a figure: its 95 % interval.</p>"
    )


def _trained(result: Result) -> str:
    n = result.trained_episodes
    return "" if n is None else f", {n:,} training episodes"


def _headline(page: Page, table: SummaryTable) -> str:
    """The table of one task as HTML."""
    head = "".join(
        f'<th scope="col" role="columnheader">{escape(m.title)} {"↑" if m.higher_is_better else "↓"}</th>'
        for m in table.measures
    )
    rows = []
    for label, row in table.rows.items():
        cells = "".join(_headline_cell(cell, m) for cell, m in zip(row, table.measures, strict=True))
        mark = f'<span class="mark {page.css(label)}"></span>'
        rows.append(f'<tr role="row"><th scope="row" role="rowheader">{mark}{escape(label)}</th>{cells}</tr>')
    heading = f"<h3>{escape(table.task.title)}</h3>" if len(page.tasks) > 1 else ""
    return (
        f"{heading}"
        f'<div class="scroll"><table class="headline" role="table" style="--n: {len(table.measures)}">'
        f'<thead role="rowgroup"><tr role="row"><th scope="col" role="columnheader">run</th>{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table></div>{note(f"{table.note}.")}'
    )


def _headline_cell(cell: SummaryCell | None, measure: Measure) -> str:
    if cell is None:
        return '<td role="cell"></td>'
    figure, digits, unit = cell.interval, 1 if measure.percent else 3, "&#160;%" if measure.percent else ""
    star = "&#160;★" if cell.best else "&#160;☆" if cell.tied else ""
    css = ' class="best"' if cell.best else ""
    low, high = measure.text(figure.low, digits), measure.text(figure.high, digits)
    bounds = f"<small>{low} to {high}</small>" if figure.bounded else ""
    return f'<td role="cell"{css}>{measure.text(figure.estimate, digits)}{unit}{star}{bounds}</td>'


def _sections(page: Page, root: Path | None) -> Iterator[str]:
    sentences = findings(page.results)
    if short := sentences.get("in-short"):
        yield f'<h2 id="in-short">In short</h2>{_list(short)}'
    for name, title in _SECTIONS.items():
        protocol = _PROTOCOLS.get(name, name)
        groups = page.groups(protocol)
        heading = f'<h2 id="{name}">{title}</h2>'
        if not groups:
            command = f"<code>polyshot evaluate --protocol {protocol}</code>"
            yield f'{heading}<p class="note">Not evaluated; run {command}.</p>'
            continue
        yield f"{heading}{_list(sentences.get(name, []))}" + "".join(_figures(page, name, groups, root))


def _list(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="findings">{items}</ul>' if items else ""


def _figures(page: Page, name: str, groups: Sequence[Group], root: Path | None) -> Iterator[str]:
    drawn = {
        "calibration": [("reliability", figures.reliability), ("confidence", figures.confidence)],
        "abstention": [("risk-coverage", figures.risk_coverage)],
        "out-of-episode": [("roc", figures.roc), ("scores", figures.scores)],
    }
    for number, task in enumerate(dict.fromkeys(group.task for group in groups)):
        here = [group for group in groups if group.task == task]
        suffix = f"-{number + 1}" if number else ""
        if len(page.tasks) > 1:
            yield f"<h3>{escape(task.title)}</h3>"
        if name == "corruption":
            yield figures.corruption(page, here, page.group("accuracy", task), f"corruption-bars{suffix}")
            yield _corrupted_samples(here, root, f"corruption-samples{suffix}")
        for figure_id, draw in drawn.get(name, []):
            yield draw(page, here[0], figure_id + suffix)


def _corrupted_samples(groups: Sequence[Group], root: Path | None, figure_id: str) -> str:
    test = load_images(groups[0].results[0], root)
    if isinstance(test, str):
        return note(test)
    caption = "Some support images as the runs saw them."
    return figures.figure(figure_id, caption, [f"<div>{draw_samples(groups, test)}</div>"])


def _episodes(page: Page, root: Path | None) -> str:
    """A few episodes of each task, with unknown classes where these were evaluated."""
    parts = ['<h2 id="episodes">A few episodes</h2>']
    for number, task in enumerate(page.tasks):
        group = page.group("out-of-episode", task) or page.group("accuracy", task)
        if group is None:
            continue
        caption = (
            "Left: the support examples, which are all that a method knows of a class. Right: the first queries of "
            "each class. Below each query, for each run: the class probabilities as bars in the order of the letters, "
            "the answer, and its probability in per cent. ✗ in a red frame: wrong."
        )
        if group.protocol == "out-of-episode":
            caption += (
                " ⚑: flagged as unknown. The threshold is such that a tenth of the known queries of the episode are "
                "flagged. An unknown class without ⚑ was missed."
            )
        images = load_images(group.results[0], root)
        drawn = note(images) if isinstance(images, str) else draw_episodes(group, images)
        figure_id = "episodes-drawn" + (f"-{number + 1}" if number else "")
        heading = f"<h3>{escape(task.title)}</h3>" if len(page.tasks) > 1 else ""
        parts.append(f'{heading}<figure id="{figure_id}">{note(caption)}{drawn}</figure>')
    return "".join(parts)


def _configuration(page: Page) -> str:
    """Everything that the results record about how they were made."""
    parts = ['<h2 id="configuration">How this was made</h2>']
    for label in page.labels:
        results = [r for r in page.results if r.label == label]
        first = results[0]
        rows = {
            "method": first.method, "scenario": first.scenario, "tested on": first.test_set,
            "training": _pairs({k: v for k, v in first.training.items() if k not in ("method", "scenario", "options")}),
            "options": _pairs(first.options), "trained for": _trained(first).removeprefix(", ") or "unknown",
            "temperature": _pairs(vars(first.temperature)) if first.temperature else "none",
            "weights (SHA-256)": first.weights, "packages": _pairs(first.packages),
        }  # fmt: skip
        for r in results:
            name = r.path.name if r.path else r.protocol
            settings = {k: v for k, v in vars(r.settings).items() if v is not None and k != "protocol"}
            rows[name] = _pairs(settings) + ("" if math.isnan(r.seconds) else f"; {r.seconds:.1f} s")
        cells = "".join(f'<tr><th scope="row">{escape(k)}</th><td>{escape(str(v))}</td></tr>' for k, v in rows.items())
        parts.append(f"<details><summary>{escape(label)}</summary><table><tbody>{cells}</tbody></table></details>")
    return "".join(parts)


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
