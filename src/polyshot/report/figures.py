"""The report's figures: each takes a group of results and returns an HTML figure with its caption.

A result without the data for a figure is left out of it, and the page says so.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from polyshot.evaluation.measures import MEASURES, outlier_measures
from polyshot.evaluation.metrics import ReliabilityBins
from polyshot.evaluation.results import Result
from polyshot.report.findings import percent
from polyshot.report.groups import Group, Page
from polyshot.report.markup import escape, note
from polyshot.report.svg import DASHES, Bar, Chart, interval_bars, swatch

_FEW = 0.005  # a bin with a smaller share of the queries is drawn faint


def reliability(page: Page, group: Group, figure_id: str) -> str:
    """Accuracy against confidence, one diagram per run."""
    known, missing = _with(group, "reliability bins", lambda r: r.reliability is not None)
    panels = []
    for r in known:
        assert r.reliability is not None
        chart = _reliability_chart(r.label, r.reliability, page.css(r.label), _calibration_line(r))
        panels.append(_panel(page, r, chart, _calibration_line(r)))
    caption = (
        "Reliability. Each bar stands for the queries in one range of confidence; its height is the share of them that "
        "is right. Calibrated confidence follows the dashed diagonal; dotted outlines are the gaps. Faint bars have "
        "less than 0.5 % of the queries."
    )
    return figure(figure_id, caption, panels) + missing


def confidence(page: Page, group: Group, figure_id: str) -> str:
    """Confidence of right and of wrong answers, one histogram per run."""
    known, missing = _with(group, "confidence histogram", lambda r: r.confidence_histogram is not None)
    panels = []
    for r in known:
        histogram = r.confidence_histogram
        assert histogram is not None
        share = histogram.wrong.sum() / (histogram.right.sum() + histogram.wrong.sum())
        panels.append(_panel(page, r, _two_histograms(
            f"Histograms of the confidence of {r.label} in right and in wrong answers",
            histogram.edges, histogram.right, histogram.wrong, "confidence (%)", page.css(r.label),
        ), f"{percent(share)} of the answers are wrong"))  # fmt: skip
    caption = (
        "Confidence of right answers (filled) and of wrong answers (thick outline), each as shares of its own total. "
        "Wrong answers should be on the left: a method should not be confident when it is wrong."
    )
    return figure(figure_id, caption, panels) + missing


def risk_coverage(page: Page, group: Group, figure_id: str) -> str:
    """Accuracy among the most confident answers."""
    known, missing = _with(group, "risk-coverage curve", lambda r: r.risk_coverage is not None)
    curves = {r.label: r.risk_coverage for r in known if r.risk_coverage is not None}
    if not curves:
        return missing
    notes = {label: f"area {curve.area:.3f}" for label, curve in curves.items()}
    chart = Chart(
        "Accuracy against the share of queries answered. " + "; ".join(f"{k}: {text}" for k, text in notes.items()),
        (0, 1), (_round_down(min(float(curve.accuracy.min()) for curve in curves.values())), 1),
        "share of queries answered (%)", "accuracy (%)", (320, 240),
    )  # fmt: skip
    for label, curve in curves.items():
        chart.line(curve.coverage, curve.accuracy, *_line(page, label))
    caption = (
        "Accuracy if only the most confident answers are given and the rest are left to a person. The curve of a "
        "method that knows when it is unsure rises to the left."
    )
    return figure(figure_id, caption, [f"<div>{chart.svg()}</div>"], _legend(page, notes)) + missing


def roc(page: Page, group: Group, figure_id: str) -> str:
    """Unknown classes detected against false alarms, one panel per outlier score."""
    known, missing = _with(group, "ROC curves", lambda r: bool(r.roc))
    panels, notes = [], {r.label: "" for r in known}
    for measure in outlier_measures():
        some = [r for r in known if measure.name in r.roc and measure.name in r.summary]
        if not some:
            continue
        values = {r.label: measure.text(r.summary[measure.name].estimate) for r in some}
        chart = Chart(
            f"ROC curves of out-of-episode detection by {measure.score_title}. "
            + "; ".join(f"{label}: AUROC {text}" for label, text in values.items()),
            (0, 1), (0, 1), "known taken for unknown (%)", "unknown detected (%)", (280, 270),
        )  # fmt: skip
        chart.line([0, 1], [0, 1], "diagonal")
        for r in some:
            curve = r.roc[measure.name]
            chart.line(curve.false_positive_rate, curve.true_positive_rate, *_line(page, r.label))
            before = f"{notes[r.label]}, " if notes[r.label] else "AUROC "
            notes[r.label] = f"{before}{values[r.label]} by {measure.score_title}"
        panels.append(f"<div><h4>Score: {escape(measure.score_title)}</h4>{chart.svg()}</div>")
    caption = (
        "Detection of queries of unknown classes, mean over episodes. The paper's score is minus the largest logit. "
        "The entropy of the class probabilities is the total predictive uncertainty. Methods with a posterior over the "
        "logits also have their variance. The diagonal is guessing."
    )
    return figure(figure_id, caption, panels, _legend(page, notes)) + missing


def scores(page: Page, group: Group, figure_id: str) -> str:
    """The headline outlier score of known and unknown classes, one histogram per run."""
    measure = next(m for m in outlier_measures() if m.headline)
    known, missing = _with(group, "score histogram", lambda r: measure.name in r.score_histograms)
    panels = []
    for r in known:
        histogram = r.score_histograms[measure.name]
        chart = _two_histograms(
            f"Histograms of the outlier score of {r.label} for queries of known and of unknown classes",
            histogram.edges, histogram.inside, histogram.outside, measure.score_title, page.css(r.label),
            x_percent=False,
        )  # fmt: skip
        panels.append(_panel(page, r, chart, ""))
    caption = (
        "The score for “none of these classes”: queries of known classes filled, of unknown classes as a thick "
        "outline. The less they overlap, the better."
    )
    return figure(figure_id, caption, panels) + missing


def corruption(page: Page, groups: Sequence[Group], clean: Group | None, figure_id: str) -> str:
    """Accuracy and Brier score with and without corruption, as bars with intervals."""
    shown = {r.label for group in groups for r in group.results}
    panels = []
    for measure in (MEASURES["accuracy"], MEASURES["brier"]):
        blocks = []
        conditions = [(g.condition, g) for g in ([clean] if clean else []) + list(groups)]
        known = [r for _, g in conditions for r in g.results if r.label in shown and measure.name in r.summary]
        intervals = [r.summary[measure.name] for r in known]
        ends = [i.high if i.bounded else i.estimate for i in intervals]
        largest = 1.0 if measure.percent else max(ends, default=1.0)
        for condition, g in conditions:
            bars = [
                Bar(r.label, r.summary[measure.name], measure.text(r.summary[measure.name].estimate,
                    1 if measure.percent else None), page.css(r.label))
                for r in g.results if r in known
            ]  # fmt: skip
            described = ", ".join(f"{bar.name} {bar.text}" for bar in bars)
            drawn = interval_bars(f"{measure.heading} under {condition}: {described}", bars, largest)
            blocks.append(f"<h5>{escape(condition)}</h5>{drawn}")
        better = "higher is better" if measure.higher_is_better else "lower is better"
        panels.append(f"<div><h4>{escape(measure.heading)}, {better}</h4>{''.join(blocks)}</div>")
    caption = "Support and query images are corrupted alike; whiskers are 95 % intervals over episodes."
    return figure(figure_id, caption, panels)


def figure(figure_id: str, caption: str, panels: Sequence[str], legend: str = "") -> str:
    """An HTML figure of panels side by side; nothing if there are no panels."""
    if not panels:
        return ""
    columns = len(panels) if len(panels) <= 3 else 4
    grid = f'<div class="panels n{columns}">{"".join(panels)}</div>'
    return f'<figure id="{figure_id}">{grid}{legend}<figcaption>{escape(caption)}</figcaption></figure>'


def _with(group: Group, what: str, has: Callable[[Result], bool]) -> tuple[list[Result], str]:
    """The results that have the data for a figure, and a note about those that lack them."""
    known = [r for r in group.results if has(r)]
    missing = [r.label for r in group.results if not has(r)]
    return known, note(f"Not drawn, because the results have no {what}: {', '.join(missing)}." if missing else "")


def _panel(page: Page, result: Result, chart: str, text: str) -> str:
    mark = f'<span class="mark {page.css(result.label)}"></span>'
    return f"<div><h4>{mark}{escape(result.label)}</h4>{chart}{note(text)}</div>"


def _reliability_chart(label: str, bins: ReliabilityBins, css: str, line: str) -> str:
    chart = Chart(f"Reliability diagram of {label}: {line}", (0, 1), (0, 1), "confidence (%)", "right (%)", (280, 270))
    total = bins.count.sum()
    for low, high, n, sure, right in zip(
        bins.edges[:-1], bins.edges[1:], bins.count, bins.confidence, bins.accuracy, strict=True
    ):
        if n:
            faint = " faint" if n < _FEW * total else ""
            chart.box(low, 0, high, right, f"fill {css}{faint}")
            chart.box(low, min(right, sure), high, max(right, sure), f"gap{faint}")
    chart.line([0, 1], [0, 1], "diagonal")
    return chart.svg()


def _two_histograms(
    description: str,
    edges: Float[np.ndarray, " edges"],
    filled: Int[np.ndarray, " bins"],
    outlined: Int[np.ndarray, " bins"],
    x_label: str,
    css: str,
    x_percent: bool = True,
) -> str:
    """Shares of two kinds, each of its own total."""
    first, second = (counts / max(counts.sum(), 1) for counts in (filled, outlined))
    top = max(first.max(), second.max()) * 1.05
    chart = Chart(description, (edges[0], edges[-1]), (0, top), x_label, "share of its kind (%)", x_percent=x_percent)
    for low, high, share in zip(edges[:-1], edges[1:], first, strict=True):
        if share:
            chart.box(low, 0, high, share, f"fill {css}")
    chart.steps(edges, second, "outline")
    return chart.svg()


def _calibration_line(r: Result) -> str:
    shown = [MEASURES[name] for name in ("ece", "mce", "brier") if name in r.summary]
    return ", ".join(f"{m.title} {m.text(r.summary[m.name].estimate)}" for m in shown)


def _line(page: Page, label: str) -> tuple[str, str]:
    return f"line {page.css(label)}", DASHES[page.labels.index(label) % len(DASHES)]


def _legend(page: Page, notes: dict[str, str]) -> str:
    items = []
    for label, text in notes.items():
        css, dash = page.css(label), DASHES[page.labels.index(label) % len(DASHES)]
        items.append(f"<li>{swatch(css, dash)} <strong>{escape(label)}</strong> <span>{escape(text)}</span></li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _round_down(share: float) -> float:
    """A round start of the axis, so that curves near 1 can be distinguished."""
    return next((low for low in (0.95, 0.9, 0.8, 0.6, 0.4, 0.2) if low <= share), 0.0)
