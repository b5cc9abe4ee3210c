"""The report's figures: each takes a group of results and returns an HTML figure with its caption."""

from collections.abc import Sequence
from html import escape

from polyshot.evaluation.results import Result
from polyshot.report.findings import percent
from polyshot.report.groups import Group, Page, all_labels, value
from polyshot.report.svg import DASHES, Chart, interval_bars, swatch

_FEW = 0.005  # a bin with fewer of the queries than this is drawn faint


def reliability(page: Page, group: Group, figure_id: str) -> str:
    """Accuracy against confidence, one diagram a run."""
    panels = [_panel(page, r, _reliability_chart(r, page.css(r.label)), _calibration_line(r)) for r in group.results]
    caption = (
        "Reliability. Each bar holds the queries of one range of confidence; its height is the share of them that is "
        "right. Honest confidence follows the dashed diagonal; the dotted outlines are the gaps. Faint bars hold "
        "less than 0.5 % of the queries."
    )
    return figure(figure_id, caption, panels)


def confidence(page: Page, group: Group, figure_id: str) -> str:
    """How sure the answers are, right ones and wrong ones."""
    panels = []
    for r in group.results:
        edges, right, wrong = (r.confidence_histogram[key] for key in ("edges", "right", "wrong"))
        panels.append(_panel(page, r, _two_histograms(
            f"Histograms of the confidence of {r.label} where it is right and where it is wrong",
            edges, right, wrong, "confidence (%)", page.css(r.label),
        ), f"{percent(sum(wrong) / (sum(right) + sum(wrong)))} of the answers are wrong"))  # fmt: skip
    caption = (
        "Confidence of the right answers (filled) and of the wrong ones (thick outline), each as shares of its kind. "
        "Wrong answers should lie to the left: whoever errs should not be sure."
    )
    return figure(figure_id, caption, panels)


def risk_coverage(page: Page, group: Group, figure_id: str) -> str:
    """Accuracy among the answers that are surest."""
    lowest = min(min(r.risk_coverage["accuracy"]) for r in group.results)
    chart = Chart(
        "Accuracy against the share of queries answered. "
        + "; ".join(f"{r.label}: area {r.risk_coverage['area']:.3f}" for r in group.results),
        (0, 1), (_round_down(lowest), 1), "share of queries answered (%)", "accuracy (%)", (320, 240),
    )  # fmt: skip
    for r in group.results:
        chart.line(r.risk_coverage["coverage"], r.risk_coverage["accuracy"], *_line(page, r.label))
    caption = (
        "Accuracy if only the surest answers are given and the rest are left to a person. A curve that rises to the "
        "left knows when it does not know."
    )
    notes = {r.label: f"area {r.risk_coverage['area']:.3f}" for r in group.results}
    return figure(figure_id, caption, [f"<div>{chart.svg()}</div>"], _legend(page, list(notes), notes))


_OUTLIER_SCORES = (
    ("score", "auroc", "minus the largest logit"),
    ("entropy", "auroc_entropy", "entropy"),
    ("variance", "auroc_variance", "variance of the logits"),
)


def roc(page: Page, group: Group, figure_id: str) -> str:
    """Unknown classes found against known ones taken for unknown, by every score."""
    panels = []
    for key, metric, name in _OUTLIER_SCORES:
        known = [r for r in group.results if metric in r.summary]
        if not known:
            continue
        chart = Chart(
            f"ROC curves of out-of-episode detection by {name}. "
            + "; ".join(f"{r.label}: AUROC {value(r, metric):.3f}" for r in known),
            (0, 1), (0, 1), "known taken for unknown (%)", "unknown found (%)", (280, 270),
        )  # fmt: skip
        chart.line([0, 1], [0, 1], "diagonal")
        for r in known:
            curve = (r.roc or {})[key]
            chart.line(curve["false_positive_rate"], curve["true_positive_rate"], *_line(page, r.label))
        panels.append(f"<div><h4>Score: {name}</h4>{chart.svg()}</div>")
    caption = (
        "Finding queries of unknown classes, mean over episodes. The paper's score is minus the largest logit; the "
        "entropy of the class probabilities is the total predictive uncertainty; methods with a posterior over logits "
        "have their variance as well. The diagonal is guessing."
    )
    notes = {
        r.label: "AUROC "
        + ", ".join(f"{value(r, metric):.3f} by {name}" for _, metric, name in _OUTLIER_SCORES if metric in r.summary)
        for r in group.results
    }
    return figure(figure_id, caption, panels, _legend(page, list(notes), notes))


def scores(page: Page, group: Group, figure_id: str) -> str:
    """The out-of-episode score of known and unknown classes, one histogram a run."""
    panels = []
    for r in group.results:
        histogram = (r.score_histograms or {})["score"]
        chart = _two_histograms(
            f"Histograms of the out-of-episode score of {r.label} for queries of known and of unknown classes",
            histogram["edges"], histogram["inside"], histogram["outside"], "minus the largest logit", page.css(r.label),
            x_percent=False,
        )  # fmt: skip
        panels.append(_panel(page, r, chart, ""))
    caption = (
        "The score for “none of these”: queries of known classes filled, of unknown classes as the thick outline. "
        "The less they overlap, the better."
    )
    return figure(figure_id, caption, panels)


def corruption(page: Page, groups: Sequence[Group], clean: Group | None, figure_id: str) -> str:
    """Accuracy and Brier score with and without corruption, bars with intervals."""
    shown = [label for label in all_labels(groups)]
    conditions = ([("no corruption", clean)] if clean else []) + [
        (f"{(g.corruption or '').replace('_', ' ')}, severity {g.severity}", g) for g in groups
    ]
    largest_brier = max(value(r, "brier") for _, g in conditions for r in g.results if r.label in shown)
    panels = []
    for metric, name, largest in (("accuracy", "Accuracy (%)", 1.0), ("brier", "Brier score", largest_brier * 1.1)):
        blocks = []
        for condition, g in conditions:
            rows = []
            for r in (r for r in g.results if r.label in shown):
                figure_, low, high = (r.summary[metric][key] for key in ("value", "low", "high"))
                text = f"{100 * value(r, metric):.1f}" if metric == "accuracy" else f"{value(r, metric):.3f}"
                rows.append((r.label, figure_ or 0.0, low, high, text, page.css(r.label)))
            described = ", ".join(f"{row[0]} {row[4]}" for row in rows)
            bars = interval_bars(f"{name} under {condition}: {described}", rows, largest)
            blocks.append(f"<h5>{escape(condition)}</h5>{bars}")
        better = "higher is better" if metric == "accuracy" else "lower is better"
        panels.append(f"<div><h4>{name}, {better}</h4>{''.join(blocks)}</div>")
    caption = "Support and query images corrupted alike; whiskers are 95 % intervals over episodes."
    return figure(figure_id, caption, panels)


def figure(figure_id: str, caption: str, panels: Sequence[str], legend: str = "") -> str:
    """An HTML figure of panels side by side."""
    columns = len(panels) if len(panels) <= 3 else 4
    grid = f'<div class="panels n{columns}">{"".join(panels)}</div>'
    return f'<figure id="{figure_id}">{grid}{legend}<figcaption>{escape(caption)}</figcaption></figure>'


def _panel(page: Page, result: Result, chart: str, note: str) -> str:
    mark = f'<span class="mark {page.css(result.label)}"></span>'
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<div><h4>{mark}{escape(result.label)}</h4>{chart}{below}</div>"


def _reliability_chart(r: Result, css: str) -> str:
    bins = r.reliability
    total = sum(bins["count"])
    chart = Chart(
        f"Reliability diagram of {r.label}: {_calibration_line(r)}",
        (0, 1), (0, 1), "confidence (%)", "right (%)", (280, 270),
    )  # fmt: skip
    for low, high, n, sure, right in zip(
        bins["edges"][:-1], bins["edges"][1:], bins["count"], bins["confidence"], bins["accuracy"], strict=True
    ):
        if n:
            faint = " faint" if n < _FEW * total else ""
            chart.box(low, 0, high, right, f"fill {css}{faint}")
            chart.box(low, min(right, sure), high, max(right, sure), f"gap{faint}")
    chart.line([0, 1], [0, 1], "diagonal")
    return chart.svg()


def _two_histograms(
    description: str,
    edges: Sequence[float],
    filled: Sequence[int],
    outlined: Sequence[int],
    x_label: str,
    css: str,
    x_percent: bool = True,
) -> str:
    """Shares of two kinds, each of its own total."""
    first, second = ([n / max(sum(counts), 1) for n in counts] for counts in (filled, outlined))
    top = max(first + second) * 1.05
    chart = Chart(description, (edges[0], edges[-1]), (0, top), x_label, "share of its kind (%)", x_percent=x_percent)
    for low, high, share in zip(edges[:-1], edges[1:], first, strict=True):
        if share:
            chart.box(low, 0, high, share, f"fill {css}")
    chart.steps(edges, second, "outline")
    return chart.svg()


def _calibration_line(r: Result) -> str:
    return f"ECE {value(r, 'ece'):.3f}, MCE {value(r, 'mce'):.3f}, Brier {value(r, 'brier'):.3f}"


def _line(page: Page, label: str) -> tuple[str, str]:
    return f"line {page.css(label)}", DASHES[page.labels.index(label) % len(DASHES)]


def _legend(page: Page, labels: Sequence[str], notes: dict[str, str]) -> str:
    items = []
    for label in labels:
        css, dash = page.css(label), DASHES[page.labels.index(label) % len(DASHES)]
        items.append(
            f"<li>{swatch(css, dash)} <strong>{escape(label)}</strong> <span>{escape(notes[label])}</span></li>"
        )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _round_down(share: float) -> float:
    """A round start of the axis, so that curves near 1 can be told apart."""
    return next((low for low in (0.95, 0.9, 0.8, 0.6, 0.4, 0.2) if low <= share), 0.0)
