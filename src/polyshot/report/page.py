"""One self-contained HTML page about some results: what was found, the figures behind it, and how it was made.

    write_report(find_results([Path("runs")]), Path("report.html"))

The page needs no network and no JavaScript, and is well-formed XML.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from polyshot.errors import InputError
from polyshot.evaluation.results import Result
from polyshot.report import figures
from polyshot.report.episodes import draw_episodes, draw_samples, load_images
from polyshot.report.findings import MEANINGS, findings
from polyshot.report.groups import Group, Page, Task, compare, value
from polyshot.report.tables import SMALLER_IS_BETTER, method_label
from polyshot.system.files import write_atomically

_HEADLINE = ("accuracy", "ece", "brier", "log_likelihood", "auroc")
_SECTIONS = {
    "calibration": "Is its confidence honest?",
    "abstention": "Does it know when it does not know?",
    "out-of-episode": "Does it notice unknown classes?",
    "corruption": "What if the images are bad?",
}
_PROTOCOLS = {"calibration": "accuracy", "abstention": "accuracy"}  # others: their own
_SURE = 0.05


def write_report(results: Sequence[Result], out: Path, root: Path | None = None) -> Path:
    """Write the page; `root` is where the data are, for the pictures of episodes."""
    write_atomically(out, make_report(results, root).encode())
    return out


def make_report(results: Sequence[Result], root: Path | None = None) -> str:
    """The page as a string."""
    if not results:
        raise InputError("a report needs at least one result; `polyshot evaluate RUN` writes RUN/results")
    page = Page(list(results))
    title = f"Few-shot results: {', '.join(dict.fromkeys(task.title for task in page.tasks))}"
    body = "\n".join([_head(page, title), *_sections(page, root), _episodes(page, root), _configuration(page)])
    template = files("polyshot.report").joinpath("template.html").read_text("utf-8")
    return Template(template).substitute(title=escape(title), body=body)


def _head(page: Page, title: str) -> str:
    runs = [r for r in {r.label: r for r in page.results}.values() if r.temperature is None]
    who = "; ".join(f"{r.label} is {method_label(r)[0]}, {r.trained_episodes:,} training episodes" for r in runs)
    tables = "".join(_headline(page, task) for task in page.tasks)
    shown = [name for name in _HEADLINE if any(name in r.summary for r in page.results)]
    meanings = "".join(f"<dt>{MEANINGS[m][0]}</dt><dd>{escape(MEANINGS[m][1])}</dd>" for m in shown)
    return (
        f'<h1>{escape(title)}</h1><p class="lead">{escape(who)}. Made by polyshot on {date.today():%d %B %Y}.</p>'
        f'{tables}<dl class="meanings">{meanings}</dl>'
        '<p class="note">★ best of the column; ☆ not told apart from it on the same episodes (sign-flip test, p above '
        "0.05). Below a figure: its 95 % interval.</p>"
    )


def _headline(page: Page, task: Task) -> str:
    """Rows are labels; AUROC comes from the out-of-episode protocol, the rest from accuracy."""
    groups = {m: page.group("out-of-episode" if m == "auroc" else "accuracy", task) for m in _HEADLINE}
    shown = {m: group for m, group in groups.items() if group is not None}
    if not shown:
        return ""
    labels = [label for label in page.labels if any(group.of(label) for group in shown.values())]
    head = "".join(
        f'<th scope="col" role="columnheader">{MEANINGS[m][0]} {"↓" if m in SMALLER_IS_BETTER else "↑"}</th>'
        for m in shown
    )
    rows = []
    for label in labels:
        cells = "".join(_headline_cell(group, label, m) for m, group in shown.items())
        mark = f'<span class="mark {page.css(label)}"></span>'
        rows.append(f'<tr role="row"><th scope="row" role="rowheader">{mark}{escape(label)}</th>{cells}</tr>')
    heading = f"<h3>{escape(task.title)}</h3>" if len(page.tasks) > 1 else ""
    counts = ", ".join(sorted({_episodes_line(group) for group in shown.values()}))
    return (
        f"{heading}"
        f'<div class="scroll"><table class="headline" role="table" style="--n: {len(shown)}">'
        f'<thead role="rowgroup"><tr role="row"><th scope="col" role="columnheader">run</th>{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table></div><p class="note">{escape(counts)}.</p>'
    )


def _headline_cell(group: Group, label: str, metric: str) -> str:
    result = group.of(label)
    if result is None:
        return '<td role="cell"></td>'
    pick = min if metric in SMALLER_IS_BETTER else max
    best = pick(group.results, key=lambda r: value(r, metric))
    figure = result.summary[metric]
    scale, digits, unit = (100, 1, "&#160;%") if metric == "accuracy" else (1, 3, "")
    star = ""
    if len(group.results) > 1 and value(result, metric) == value(best, metric):
        star = "&#160;★"
    elif (paired := compare(result, best, metric)) is not None and paired.p_value > _SURE:
        star = "&#160;☆"
    css = ' class="best"' if "★" in star else ""
    low, high = figure["low"], figure["high"]
    bounds = (
        f"<small>{scale * low:.{digits}f} to {scale * high:.{digits}f}</small>"
        if low is not None and high is not None
        else ""
    )
    return f'<td role="cell"{css}>{scale * value(result, metric):.{digits}f}{unit}{star}{bounds}</td>'


def _episodes_line(group: Group) -> str:
    counts = sorted({len(r.episodes["accuracy"]) for r in group.results})
    return f"{group.protocol}: {' or '.join(f'{n:,}' for n in counts)} episodes"


def _sections(page: Page, root: Path | None) -> Iterator[str]:
    sentences = findings(page)
    if short := sentences.get("in-short"):
        yield f'<h2 id="in-short">In short</h2>{_list(short)}'
    for name, title in _SECTIONS.items():
        protocol = _PROTOCOLS.get(name, name)
        groups = page.groups(protocol)
        heading = f'<h2 id="{name}">{title}</h2>'
        if not groups:
            command = f"<code>polyshot evaluate --protocol {protocol}</code>"
            yield f'{heading}<p class="note">Not evaluated: {command} does it.</p>'
            continue
        yield f"{heading}{_list(sentences[name])}" + "".join(_figures(page, name, groups, root))


def _list(sentences: Sequence[str]) -> str:
    return f'<ul class="findings">{"".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)}</ul>'


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
        return f'<p class="note">{escape(test)}</p>'
    caption = "Some support images as the runs saw them."
    return figures.figure(figure_id, caption, [f"<div>{draw_samples(groups, test)}</div>"])


def _episodes(page: Page, root: Path | None) -> str:
    """A few episodes of each task, with unknown classes where that was evaluated."""
    parts = ['<h2 id="episodes">A few episodes</h2>']
    for number, task in enumerate(page.tasks):
        group = page.group("out-of-episode", task) or page.group("accuracy", task)
        if group is None:
            continue
        caption = (
            "Left: the support examples, all that is known of a class. Right: queries, the first of each class; "
            "beneath, for each run, its class probabilities as bars in the order of the letters, its answer and its "
            "probability in per cent. ✗ in a red frame: wrong."
        )
        if group.protocol == "out-of-episode":
            caption += (
                " ⚑: taken for unknown, which a tenth of the known queries of the episode are; an unknown class "
                "without ⚑ was missed."
            )
        images = load_images(group.results[0], root)
        drawn = f'<p class="note">{escape(images)}</p>' if isinstance(images, str) else draw_episodes(group, images)
        figure_id = "episodes-drawn" + (f"-{number + 1}" if number else "")
        heading = f"<h3>{escape(task.title)}</h3>" if len(page.tasks) > 1 else ""
        parts.append(f'{heading}<figure id="{figure_id}"><p class="note">{escape(caption)}</p>{drawn}</figure>')
    return "".join(parts)


def _configuration(page: Page) -> str:
    """Everything that a result says of how it was made."""
    parts = ['<h2 id="configuration">How this was made</h2>']
    for label in page.labels:
        results = [r for r in page.results if r.label == label]
        first = results[0]
        rows = {
            "method": first.method, "scenario": first.scenario, "tested on": first.test_set,
            "training": _pairs({k: v for k, v in first.training.items() if k not in ("method", "scenario", "options")}),
            "options": _pairs(first.options), "trained for": f"{first.trained_episodes:,} episodes",
            "temperature": _pairs(first.temperature or {}) or "none", "weights (SHA-256)": first.weights,
            "packages": _pairs(first.packages),
        }  # fmt: skip
        for r in results:
            name = r.path.name if r.path else r.protocol
            settings = {k: v for k, v in r.settings.items() if v is not None and k != "protocol"}
            rows[name] = f"{_pairs(settings)}; {r.seconds:.1f} s"
        cells = "".join(f'<tr><th scope="row">{escape(k)}</th><td>{escape(str(v))}</td></tr>' for k, v in rows.items())
        parts.append(f"<details><summary>{escape(label)}</summary><table><tbody>{cells}</tbody></table></details>")
    return "".join(parts)


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
