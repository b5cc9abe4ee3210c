"""What the numbers say, in one plain sentence each."""

from collections.abc import Iterator, Sequence

import numpy as np

from polyshot.evaluation.comparison import PairedComparison
from polyshot.evaluation.measures import outlier_measures
from polyshot.evaluation.paired_results import compare
from polyshot.evaluation.results import Result
from polyshot.report.groups import Group, Page
from polyshot.report.summary import SIGNIFICANT

_SHARE_ANSWERED = 0.8
_MOST_RIVALS = 3  # more sentences would hide what matters


def findings(results: Sequence[Result]) -> dict[str, list[str]]:
    """Sentences by section; the first run of a group is compared with the others.

    Returns
    -------
    dict
        Sections are "in-short", "calibration", "abstention", "out-of-episode" and "corruption"; a section without
        sentences is left out.
    """
    page = Page(results)
    accuracy, corruption = page.groups("accuracy"), page.groups("corruption")
    outside = page.groups("out-of-episode")
    several = len(page.tasks) > 1
    widest = {g.task: g for g in sorted([*accuracy, *outside, *corruption], key=lambda g: len(g.results))}

    def said(group: Group, sentences: Iterator[str]) -> list[str]:
        return [f"{group.task.title}: {s}" if several else s for s in sentences]

    sections = {
        "in-short": [
            *(s for g in accuracy for s in said(g, _accuracy(g))),
            *(s for g in accuracy for s in said(g, _brier(g))),
            *(s for g in outside for s in said(g, _detection(g))),
            *(s for g in widest.values() for s in said(g, _left_out(g))),
        ],
        "calibration": [s for g in accuracy for s in said(g, _calibration(g))],
        "abstention": [s for g in accuracy for s in said(g, _abstention(g))],
        "out-of-episode": [s for g in outside for s in said(g, _outside(g))],
        "corruption": [s for g in corruption for s in said(g, _corruption(g, page.group("accuracy", g.task)))],
    }
    return {name: sentences for name, sentences in sections.items() if sentences}


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent."""
    return f"{100 * share:.{digits}f} %"


def _plain(group: Group, measure: str) -> list[Result]:
    """The results without a temperature that have the measure."""
    return [r for r in group.results if r.temperature is None and measure in r.summary]


def _others(group: Group) -> list[Result]:
    return [r for r in group.results[1:] if r.run != group.results[0].run]


def _rivals(group: Group, measure: str, scaled: bool = False) -> list[Result]:
    if measure not in group.results[0].summary:
        return []
    return [r for r in _others(group) if (scaled or r.temperature is None) and measure in r.summary][:_MOST_RIVALS]


def _left_out(group: Group) -> Iterator[str]:
    if (n := len(_others(group))) > _MOST_RIVALS:
        yield (
            f"Sentences compare {group.results[0].label} with the first {_MOST_RIVALS} of {n} others only; the tables "
            "and the comparison files have all."
        )


def _accuracy(group: Group) -> Iterator[str]:
    first = group.results[0]
    if len(group.results) == 1 and "accuracy" in first.summary:
        yield f"{first.label} assigns {percent(_value(first, 'accuracy'))} of the queries to the right class."
    for rival in _rivals(group, "accuracy"):
        yield _accuracy_difference(first, rival)


def _accuracy_difference(first: Result, rival: Result) -> str:
    paired = compare(first, rival, "accuracy")
    if paired is None:
        return _untested(first, rival, "accuracy", "accuracy")
    points = 100 * paired.difference.estimate
    if paired.p_value >= SIGNIFICANT:
        return _no_difference(first, rival, paired, "accuracy")
    word = "more" if points > 0 else "less"
    return (
        f"{first.label} is {abs(points):.1f} points {word} accurate than {rival.label} on the same "
        f"{paired.n_episodes} episodes ({_interval(paired, 100, 1)})."
    )


def _detection(group: Group) -> Iterator[str]:
    first, measure = group.results[0], _detection_measure(group)
    for rival in _rivals(group, measure):
        paired = compare(first, rival, measure)
        if paired is None:
            yield _untested(first, rival, measure, "AUROC")
        elif paired.p_value >= SIGNIFICANT:
            yield _no_difference(first, rival, paired, "AUROC")
        else:
            points = 100 * paired.difference.estimate
            yield (
                f"{first.label} detects unknown classes {'better' if points > 0 else 'worse'} than {rival.label}, by "
                f"{abs(points):.1f} points of AUROC, on the same {paired.n_episodes} episodes "
                f"({_interval(paired, 100, 1)})."
            )


def _detection_measure(group: Group) -> str:
    """By the methods' own scores, or by minus the largest logit where a result is older than that measure."""
    return "auroc_own" if all("auroc_own" in r.summary for r in group.results) else "auroc"


def _untested(first: Result, rival: Result, measure: str, what: str) -> str:
    same = (first.settings, first.test_data) == (rival.settings, rival.test_data)
    why = "there are no per-episode figures" if same else "they were evaluated on different episodes"
    values = [percent(_value(r, measure)) for r in (first, rival)]
    return (
        f"{first.label} has an {what} of {values[0]} and {rival.label} one of {values[1]}; the difference was not "
        f"tested, because {why}."
    )


def _no_difference(first: Result, rival: Result, paired: PairedComparison, what: str) -> str:
    return (
        f"{first.label} and {rival.label} do not differ significantly in {what} on the same {paired.n_episodes} "
        f"episodes: {100 * paired.difference.estimate:+.1f} points ({_interval(paired, 100, 1)})."
    )


def _brier(group: Group) -> Iterator[str]:
    first = group.results[0]
    for rival in _rivals(group, "brier", scaled=True):
        paired = compare(first, rival, "brier")
        if paired is None:
            continue
        where = f"on the same {paired.n_episodes} episodes ({_interval(paired, 1, 3)})"
        words = "better (lower)" if paired.difference.estimate < 0 else "worse (higher)"
        if paired.p_value < SIGNIFICANT:
            yield (
                f"The Brier score of {first.label} is {abs(paired.difference.estimate):.3f} {words} than that of "
                f"{rival.label} {where}."
            )
        else:
            yield f"{first.label} and {rival.label} do not differ significantly in Brier score {where}."


def _calibration(group: Group) -> Iterator[str]:
    for r in group.results:
        bins = r.reliability
        if bins is None or not {"accuracy", "ece"} <= r.summary.keys():
            continue
        confidence = float(np.nansum(bins.count * bins.confidence) / bins.count.sum())
        right = _value(r, "accuracy")
        gap = confidence - right
        verdict = "over-confident" if gap > 0.01 else "under-confident" if gap < -0.01 else "well calibrated"
        yield (
            f"{r.label} is {percent(confidence)} confident on average and right for {percent(right)} of the queries: "
            f"{verdict}. Its expected calibration error is {100 * _value(r, 'ece'):.1f} points."
        )


def _abstention(group: Group) -> Iterator[str]:
    for r in _plain(group, "accuracy"):
        if (curve := r.risk_coverage) is not None:
            i = int(np.abs(curve.coverage - _SHARE_ANSWERED).argmin())
            yield (
                f"If {r.label} answers only the {percent(curve.coverage[i], 0)} of the queries that it is most "
                f"confident about, {percent(curve.accuracy[i])} of these answers are right, instead of "
                f"{percent(_value(r, 'accuracy'))} of all."
            )


def _outside(group: Group) -> Iterator[str]:
    """Each score's share of pairs; a score that gives the same number as an earlier one is not repeated."""
    for r in _plain(group, _detection_measure(group)):
        shares: dict[str, str] = {}
        for measure in outlier_measures():
            if measure.name in r.summary:
                shares.setdefault(percent(_value(r, measure.name)), measure.score_title or measure.title)
        texts = [f"{share} by {title}" for share, title in shares.items()]
        listed = ", ".join(texts[:-1]) + (" and " if len(texts) > 1 else "") + texts[-1]
        yield (
            f"Given one query of a known class and one of an unknown class, {r.label} picks out the unknown one in "
            f"{listed.replace(' by', ' of such pairs by', 1)}."
        )


def _corruption(group: Group, clean: Group | None) -> Iterator[str]:
    changes = []
    for r in _plain(group, "accuracy"):
        before = clean.of(r.label) if clean else None
        start = f"from {percent(_value(before, 'accuracy'))} " if before else ""
        changes.append(f"{r.label} {start}to {percent(_value(r, 'accuracy'))}")
    paired = [_accuracy_difference(group.results[0], rival) for rival in _rivals(group, "accuracy")]
    if changes:
        yield " ".join([f"Under {group.condition}, accuracy changes: {', '.join(changes)}.", *paired])


def _value(result: Result, measure: str) -> float:
    return result.summary[measure].estimate


def _interval(paired: PairedComparison, scale: int, digits: int) -> str:
    p = "p < 0.001" if paired.p_value < 0.001 else f"p = {paired.p_value:.3f}"
    d = paired.difference
    if not d.bounded:
        return p
    return f"95 % interval {scale * d.low:+.{digits}f} to {scale * d.high:+.{digits}f}, {p}"
