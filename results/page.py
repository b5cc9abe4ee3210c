"""Put the numbers of results/ into docs/results.md, and draw its figures: make results-page

Between `<!-- results: PLACE -->` and `<!-- end -->` stands what the JSON files of results/PLACE say, and nothing that
was typed. A test finds the page equal to what this script makes.
"""

import json
import re
from pathlib import Path

from polyshot.evaluation.published import published_figure
from polyshot.evaluation.results import Result, find_results
from polyshot.evaluation.tables import method_label
from polyshot.experiments.output import new_figure, save_figure

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
FIGURES = HERE.parent / "docs" / "figures"
ORDER = (
    "feature-transfer", "baseline++", "matchingnet", "protonet", "relationnet", "maml", "dkt", "bayesian-maml",
    "bayesian-maml-chaser", "abml", "logistic-softmax-ml", "logistic-softmax-pl", "ove-ml", "ove-pl-paper", "ove-pl",
)  # fmt: skip
NEAREST = {"omniglot-to-chars74k": "omniglot-to-emnist", "cub": "cub"}  # what the paper has that is most like ours


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


def table(place: str) -> str:
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
    return markdown(head, rows)


def minutes(place: str, run: str) -> str:
    """Processor time of the training, which the training log has."""
    last = json.loads((HERE / place / run / "log.jsonl").read_text("utf-8").splitlines()[-1])
    return f"{last['processor_seconds'] / 60:.0f}" if "processor_seconds" in last else "-"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table whose first column is text."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] + ["---:"] * (len(head) - 1), *rows])


def filled(text: str) -> str:
    """The page with every table made anew."""
    found = r"<!-- results: (\S+) -->\n.*?<!-- end -->"
    return re.sub(found, lambda m: f"<!-- results: {m[1]} -->\n{table(m[1])}\n<!-- end -->", text, flags=re.DOTALL)


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
    """Fill the page and draw the figures."""
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
    for shots in ("1-shot", "5-shot"):
        place = f"omniglot-to-chars74k/{shots}"
        if runs_of(place):
            draw_reliability(place, FIGURES / f"reliability-{shots}")


if __name__ == "__main__":
    main()
