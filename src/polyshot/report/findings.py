"""What the numbers say, one plain sentence each."""

from collections.abc import Iterator

from polyshot.evaluation.comparison import PairedComparison
from polyshot.evaluation.results import Result
from polyshot.report.groups import Group, Page, compare, value

MEANINGS = {
    "accuracy": ("Accuracy", "share of queries put into the right class"),
    "ece": ("ECE", "how far stated confidence lies from the share that is right, on average; 0 is honest"),
    "brier": ("Brier", "squared error of the probabilities; 0 is sure and right, 2 is sure and wrong"),
    "log_likelihood": ("Log-lik.", "mean log-probability of the true class; nearer 0 is better, sure errors cost most"),
    "auroc": ("AUROC", "how often an unknown class looks stranger than a known one; 0.5 is guessing"),
}  # fmt: skip
_SHARE_ANSWERED = 0.8
_MOST_RIVALS = 3  # more would hide what matters among sentences
_SURE = 0.05


def findings(page: Page) -> dict[str, list[str]]:
    """Sentences by section; the first label of a group is what the others are compared with."""
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
            *(s for g in outside for s in said(g, _finds_unknown(g))),
            *(s for g in widest.values() for s in said(g, _left_out(g))),
        ],
        "calibration": [s for g in accuracy for s in said(g, _calibration(g))],
        "abstention": [s for g in accuracy for s in said(g, _abstention(g))],
        "out-of-episode": [s for g in outside for s in said(g, _outside(g))],
        "corruption": [s for g in corruption for s in said(g, _corruption(g, page.group("accuracy", g.task)))],
    }
    return {name: sentences for name, sentences in sections.items() if sentences}


def _others(group: Group) -> list[Result]:
    return [r for r in group.results[1:] if r.run != group.results[0].run]


def _rivals(group: Group, scaled: bool) -> list[Result]:
    return [r for r in _others(group) if scaled or r.temperature is None][:_MOST_RIVALS]


def _left_out(group: Group) -> Iterator[str]:
    if (n := len(_others(group))) > _MOST_RIVALS:
        yield (
            f"Sentences compare {group.results[0].label} with no more than the first {_MOST_RIVALS} of {n} others; the "
            "tables and comparison.json have all."
        )


def _accuracy(group: Group) -> Iterator[str]:
    first = group.results[0]
    if len(group.results) == 1:
        yield f"{first.label} puts {percent(value(first, 'accuracy'))} of the queries into the right class."
    for rival in _rivals(group, scaled=False):
        yield points_sentence(first, rival, "accuracy")


def _calibration(group: Group) -> Iterator[str]:
    for r in group.results:
        bins = r.reliability
        total = sum(bins["count"])
        confidence = sum(n * c for n, c in zip(bins["count"], bins["confidence"], strict=True) if n) / total
        right = value(r, "accuracy")
        gap = confidence - right
        verdict = "over-confident" if gap > 0.01 else "under-confident" if gap < -0.01 else "sure to the right degree"
        yield (
            f"{r.label} is {percent(confidence)} sure on average and right in {percent(right)} of the queries: "
            f"{verdict}; its calibration error is {100 * value(r, 'ece'):.1f} points."
        )


def _brier(group: Group) -> Iterator[str]:
    first = group.results[0]
    for rival in _rivals(group, scaled=True):
        difference = compare(first, rival, "brier")
        if difference is None:
            continue
        words = "better (lower)" if difference.difference.estimate < 0 else "worse (higher)"
        if difference.p_value < _SURE:
            yield (
                f"{first.label}'s Brier score is {abs(difference.difference.estimate):.3f} {words} than that of "
                f"{rival.label} on the same {difference.n_episodes} episodes ({_interval(difference, 1, 3)})."
            )
        else:
            yield (
                f"By the Brier score {first.label} and {rival.label} cannot be told apart on the same "
                f"{difference.n_episodes} episodes ({_interval(difference, 1, 3)})."
            )


def _abstention(group: Group) -> Iterator[str]:
    for r in group.results:
        if r.temperature is None:
            curve = r.risk_coverage
            i = min(range(len(curve["coverage"])), key=lambda i: abs(curve["coverage"][i] - _SHARE_ANSWERED))
            yield (
                f"Left to answer only the {percent(curve['coverage'][i], 0)} of the queries that it is surest of, "
                f"{r.label} is right in {percent(curve['accuracy'][i])} of them instead of "
                f"{percent(value(r, 'accuracy'))} of all."
            )


def _outside(group: Group) -> Iterator[str]:
    for r in (r for r in group.results if r.temperature is None):
        by_variance = "auroc_variance" in r.summary
        more = f", and by the variance of its logits in {percent(value(r, 'auroc_variance'))}" if by_variance else ""
        yield (
            f"Given one query of a known class and one of an unknown class, {r.label} finds the unknown one in "
            f"{percent(value(r, 'auroc'))} of such pairs by its largest logit{more}."
        )


def _finds_unknown(group: Group) -> Iterator[str]:
    for rival in _rivals(group, scaled=False):
        yield points_sentence(group.results[0], rival, "auroc")


def _corruption(group: Group, clean: Group | None) -> Iterator[str]:
    name = f"{(group.corruption or '').replace('_', ' ')} (severity {group.severity})"
    falls = []
    for r in (r for r in group.results if r.temperature is None):
        before = clean.of(r.label) if clean else None
        start = f"from {percent(value(before, 'accuracy'))} " if before else ""
        falls.append(f"{r.label} {start}to {percent(value(r, 'accuracy'))}")
    paired = [points_sentence(group.results[0], rival, "accuracy") for rival in _rivals(group, scaled=False)]
    yield " ".join([f"Under {name} accuracy goes: {', '.join(falls)}.", *paired])


def points_sentence(first: Result, rival: Result, metric: str) -> str:
    """Accuracy or AUROC of two runs compared, in points."""
    paired = compare(first, rival, metric)
    if paired is None:
        return (
            f"{first.label} has {percent(value(first, metric))} and {rival.label} {percent(value(rival, metric))}, "
            "but on different episodes: whether they differ is not tested."
        )
    points = 100 * paired.difference.estimate
    where = f"on the same {paired.n_episodes} episodes"
    if paired.p_value >= _SURE:
        what = "accuracy" if metric == "accuracy" else "AUROC"
        pair = f"{first.label} and {rival.label} cannot be told apart by {what} {where}"
        return f"{pair}: {points:+.1f} points ({_interval(paired, 100, 1)})."
    if metric == "accuracy":
        claim = f"is {abs(points):.1f} points {'more' if points > 0 else 'less'} accurate than {rival.label}"
    else:
        word = "better" if points > 0 else "worse"
        claim = f"finds unknown classes {word} than {rival.label}, by {abs(points):.1f} points of AUROC,"
    return f"{first.label} {claim} {where} ({_interval(paired, 100, 1)})."


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent."""
    return f"{100 * share:.{digits}f} %"


def p_text(p: float) -> str:
    """A p-value as it is read."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _interval(paired: PairedComparison, scale: int, digits: int) -> str:
    d = paired.difference
    if d.low != d.low:
        return p_text(paired.p_value)
    low, high = scale * d.low, scale * d.high
    return f"95 % interval {low:+.{digits}f} to {high:+.{digits}f}, {p_text(paired.p_value)}"
