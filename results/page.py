"""Put the numbers of results/ into docs/results.md and README.md, and draw their figures: make results-page

Between `<!-- results: PLACE -->` and `<!-- end -->` stands what the JSON files of results/PLACE say, and nothing that
was typed: all measures (PLACE), the most important ones (PLACE:headline), paired differences to `ove-pl`
(PLACE:differences), or corruptions (PLACE:corruptions). A test finds the pages equal to what this script makes.
"""

import json
import re
from pathlib import Path

from polyshot.evaluation.published import published_figure
from polyshot.evaluation.results import Result, find_comparisons, find_results
from polyshot.evaluation.tables import method_label
from polyshot.experiments.output import new_figure, save_figure

HERE = Path(__file__).parent
PAGES = (HERE.parent / "docs" / "results.md", HERE.parent / "README.md")
FIGURES = HERE.parent / "docs" / "figures"
ORDER = (
    "feature-transfer", "baseline++", "matchingnet", "protonet", "relationnet", "maml", "dkt", "bayesian-maml",
    "bayesian-maml-chaser", "abml", "logistic-softmax-ml", "logistic-softmax-pl", "ove-ml", "ove-pl-paper", "ove-pl",
)  # fmt: skip
NEAREST = {"omniglot-to-chars74k": "omniglot-to-emnist", "cub": "cub"}  # what the paper has that is most like ours
MEASURES = {"accuracy": "accuracy", "brier": "Brier", "log_likelihood": "log-likelihood", "auroc": "AUROC"}


def runs_of(place: str) -> dict[str, dict[str, Result]]:
    """The results of a folder by run, in the paper's order, and by protocol (a corruption by its name)."""
    found: dict[str, dict[str, Result]] = {}
    for result in find_results([HERE / place]) if any((HERE / place).rglob("accuracy.json")) else []:
        found.setdefault(result.run, {})[result.settings["corruption"] or result.protocol] = result
    return dict(sorted(found.items(), key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER)))


def number(result: Result | None, measure: str, digits: int = 3, factor: float = 1.0) -> str:
    """A figure of a result, or a dash."""
    value = None if result is None else result.summary.get(measure, {}).get("value")
    return "-" if value is None else f"{factor * value:.{digits}f}"


def table(place: str, headline: bool = False) -> str:
    """All measures of all runs of a place."""
    nearest = NEAREST.get(place.split("/")[0])
    head = ["", "accuracy, %", *(["paper's, %"] if nearest else []), "ECE", "MCE", "Brier", "log-likelihood"]
    head += ["AUROC, -max logit", "entropy", "variance", "trained, min"]
    rows = []
    for run, by in runs_of(place).items():
        accuracy, outside = by["accuracy"], by.get("out-of-episode")
        paper = nearest and published_figure(
            "accuracy", nearest, accuracy.settings["shots"], accuracy.method, accuracy.options, "accuracy"
        )
        row = [method_label(accuracy)[0] if run != "ove-pl-paper" else "OVE PG GP + Cosine (PL), the paper's settings"]
        row.append(f"{number(accuracy, 'accuracy', 2, 100)} ± {100 * (accuracy.summary['accuracy']['std'] or 0):.2f}")
        row += [f"{100 * paper.value:.2f}" if paper else "-"] if nearest else []
        row += [number(accuracy, m) for m in ("ece", "mce", "brier", "log_likelihood")]
        row += [number(outside, m) for m in ("auroc", "auroc_entropy", "auroc_variance")]
        rows.append([*row, minutes(place, run)])
    if headline:
        kept = [i for i, title in enumerate(head) if title not in ("MCE", "entropy", "variance", "trained, min")]
        head, rows = [head[i] for i in kept], [[row[i] for i in kept] for row in rows]
    return markdown(head, rows)


def corruptions(place: str) -> str:
    """Accuracy and Brier score under each corruption, severity 5."""
    runs = runs_of(place)
    names = sorted({name for by in runs.values() for name in by} - {"accuracy", "out-of-episode"})
    head = ["", *(f"{name.replace('_', ' ')}, {m}" for name in names for m in ("accuracy, %", "ECE", "Brier"))]
    rows = [
        [
            method_label(by["accuracy"])[0],
            *(
                text
                for name in names
                for text in (
                    number(by.get(name), "accuracy", 2, 100),
                    number(by.get(name), "ece"),
                    number(by.get(name), "brier"),
                )
            ),
        ]
        for by in runs.values()
    ]
    return markdown(head, rows)


def differences(place: str) -> str:
    """Every run less `ove-pl` on the same episodes, with 95 % intervals."""
    entries = [e for e in find_comparisons([HERE / place]) if e["corruption"] is None]
    labels = {run: method_label(by["accuracy"])[0] for run, by in runs_of(place).items()}
    rows = []
    for run in labels:
        own = [e for e in entries if e["run"] == run]
        metrics = {
            name: m for e in sorted(own, key=lambda e: e["protocol"] == "accuracy") for name, m in e["metrics"].items()
        }
        if metrics:
            rows.append([labels[run], *(interval(metrics.get(name), name) for name in MEASURES)])
    return markdown(["minus OVE PG GP (PL)", *MEASURES.values()], rows)


def interval(metric: dict[str, float] | None, name: str) -> str:
    """A difference and its interval; accuracies in points."""
    if metric is None:
        return "-"
    factor, digits = (100.0, 2) if name == "accuracy" else (1.0, 3)
    return "{:+.{d}f} [{:+.{d}f}, {:+.{d}f}]".format(
        *(factor * metric[k] for k in ("difference", "low", "high")), d=digits
    )


def minutes(place: str, run: str) -> str:
    """Processor time of the training, which the training log has."""
    last = json.loads((HERE / place / run / "log.jsonl").read_text("utf-8").splitlines()[-1])
    return f"{last['processor_seconds'] / 60:.0f}" if "processor_seconds" in last else "-"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table whose first column is text."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] + ["---:"] * (len(head) - 1), *rows])


def filled(text: str) -> str:
    """The page with every table made anew."""
    makers = {
        "": table,
        "headline": lambda p: table(p, headline=True),
        "differences": differences,
        "corruptions": corruptions,
    }

    def fill(match: re.Match[str]) -> str:
        place, _, kind = match[1].partition(":")
        return f"<!-- results: {match[1]} -->\n{makers[kind](place)}\n<!-- end -->"

    return re.sub(r"<!-- results: (\S+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def draw_reliability(place: str, stem: Path) -> None:
    """A diagram a run: accuracy against confidence in 15 bins, with how many queries each has."""
    runs = runs_of(place)
    figure, axes = new_figure(3, 5, (12.0, 7.6), sharex=True, sharey=True)
    for axis, (run, by) in zip(axes, runs.items(), strict=False):
        bins = by["accuracy"].reliability
        edges, count = bins["edges"], bins["count"]
        right = [a for a, n in zip(bins["accuracy"], count, strict=True) if n]
        sure = [c for c, n in zip(bins["confidence"], count, strict=True) if n]
        width = edges[1] - edges[0]
        axis.bar(
            edges[:-1], [n / sum(count) for n in count], width, align="edge", color="#BBBBBB", label="share of queries"
        )
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
        axis.plot(sure, right, marker="o", markersize=3, color="#009E73" if run.startswith("ove") else "#0072B2")
        axis.set(xlim=(0, 1), ylim=(0, 1), title=f"{run}, ECE {by['accuracy'].summary['ece']['value']:.3f}")
    for axis in axes[len(runs) :]:
        axis.set_visible(False)
    figure.supxlabel("confidence")
    figure.supylabel("accuracy (line), share of queries (grey)")
    save_figure(figure, stem)[1].unlink()


def main() -> None:
    """Fill the pages and draw the figures."""
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
    for shots in ("1-shot", "5-shot"):
        place = f"omniglot-to-chars74k/{shots}"
        if runs_of(place):
            draw_reliability(place, FIGURES / f"reliability-{shots}")


if __name__ == "__main__":
    main()
